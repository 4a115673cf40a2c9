"""Minimax polynomials for homomorphic evaluation, by Remez's exchange, in 60-digit arithmetic: prints the tables of
crates/base/he/src/ckks/approximate/tables.rs (`python3 docs/scripts/remez.py > crates/base/he/src/ckks/approximate/tables.rs`).

Sign by composites: every stage is the best odd polynomial of its degree for 1 on [a, 1], scaled so that what it gives
lies in [-1, 1]; the next stage begins where that ends. The first a is the smallest power of two at which the last error
is no larger than it. Tanh is the best odd polynomial on (0, r], 1/x the best on [a, 1], in t = (2x - 1 - a) / (1 - a).
Coefficients are of Chebyshev polynomials. Standard library only.
"""

from decimal import Decimal, getcontext

getcontext().prec = 60
ONE, TWO = Decimal(1), Decimal(2)
# Room that a stage leaves for the noise of the one before.
MARGIN = Decimal(2) ** -20


def chebyshev(x, degrees):
    values, last = [ONE, x], max(degrees)
    while len(values) <= last:
        values.append(2 * x * values[-1] - values[-2])
    return [values[d] for d in degrees]


def solve(rows, right):
    n = len(rows)
    rows = [list(row) + [b] for row, b in zip(rows, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, n):
            factor = rows[k][i] / rows[i][i]
            for j in range(i, n + 1):
                rows[k][j] -= factor * rows[i][j]
    x = [Decimal(0)] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - sum(rows[i][j] * x[j] for j in range(i + 1, n))) / rows[i][i]
    return x


def cosine(x):
    term, total, k = ONE, ONE, 0
    while abs(term) > Decimal(10) ** -58:
        k += 2
        term *= -x * x / (k * (k - 1))
        total += term
    return total


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def largest(error, left, right):
    """Where |error| is largest between two points, by golden section around the best of a few."""
    step = (right - left) / 16
    x = max((left + step * k for k in range(17)), key=lambda x: abs(error(x)))
    low, high = max(left, x - step), min(right, x + step)
    ratio = (Decimal(5).sqrt() - 1) / 2
    for _ in range(60):
        third = (high - low) * ratio
        if abs(error(high - third)) < abs(error(low + third)):
            low = high - third
        else:
            high = low + third
    return max((low, high, x, left, right), key=lambda x: abs(error(x)))


def minimax(function, degrees, left, right):
    """Coefficients of T_d for d in degrees, and the largest error on [left, right] (left is excluded if function and
    polynomials vanish there)."""
    n = len(degrees)
    middle, half = (left + right) / 2, (right - left) / 2
    points = [middle - half * cosine(PI * (2 * k + 1) / (2 * n + 2)) for k in range(n + 1)]
    for _ in range(60):
        rows = [chebyshev(x, degrees) + [ONE if k % 2 else -ONE] for k, x in enumerate(points)]
        *c, level = solve(rows, [function(x) for x in points])
        error = lambda x: sum(a * t for a, t in zip(c, chebyshev(x, degrees))) - function(x)
        # Between two zeros of the error lies one extreme.
        zeros = [left]
        for a, b in zip(points, points[1:]):
            sign = error(a) > 0
            for _ in range(100):
                m = (a + b) / 2
                if (error(m) > 0) == sign:
                    a = m
                else:
                    b = m
            zeros.append((a + b) / 2)
        zeros.append(right)
        points = [largest(error, a, b) for a, b in zip(zeros, zeros[1:])]
        worst = max(abs(error(x)) for x in points)
        if worst <= abs(level) * (1 + Decimal(10) ** -6):
            return c, worst
    raise ArithmeticError("the exchange does not settle")


def sign(alpha, degrees):
    a, stages = TWO**-alpha, []
    for place, degree in enumerate(degrees):
        odd = list(range(1, degree + 1, 2))
        c, error = minimax(lambda x: ONE, odd, a, ONE)
        if place + 1 < len(degrees):
            scale = (1 - MARGIN) / (1 + error)
            c = [x * scale for x in c]
            a = (1 - error) * scale - MARGIN
        stages.append(c)
    return stages, error


def balanced(degrees):
    """The composite for the largest alpha whose error is below 2^-alpha."""
    for alpha in range(16, 1, -1):
        stages, error = sign(alpha, degrees)
        if error <= TWO**-alpha:
            return alpha, stages, error
    raise ArithmeticError(f"no sign by {degrees}")


def tanh(x):
    e = (2 * x).exp()
    return (e - 1) / (e + 1)


def bits(error):
    return f"{float(error.ln() / TWO.ln()):.1f}"


def numbers(c):
    """Coefficients as doubles that are read back exactly."""
    return [repr(float(x)) for x in c]


def array(values, indent):
    lines, line = [], ""
    for v in values:
        if len(line) + len(v) + 2 > 100:
            lines.append(line.rstrip())
            line = ""
        line += v + ", "
    lines.append(line.rstrip())
    return "&[\n" + "".join(" " * (indent + 4) + line + "\n" for line in lines) + " " * indent + "]"


def main():
    print("//! Coefficients of Chebyshev polynomials, computed by `docs/scripts/remez.py`. Not to be edited.\n//! Odd polynomials have only those of odd degree.\n")
    print("#![allow(clippy::excessive_precision)]\n")
    print("/// A composite approximation of sign.")
    print("pub(super) struct SignTable {")
    print("    pub(super) alpha: u32,\n    pub(super) error_log2: f64,\n    pub(super) stages: &'static [&'static [f64]],\n}\n")
    print("/// An approximation on a range.")
    print("pub(super) struct Table {")
    print("    pub(super) range: f64,\n    pub(super) error_log2: f64,\n    pub(super) coefficients: &'static [f64],\n}\n")
    signs = [balanced(degrees) for degrees in ((7, 7), (15, 15), (7, 15, 15), (15, 15, 27), (15, 15, 15, 15))]
    print("/// Sign for arguments from `2^-alpha` to 1 in size.")
    print(f"pub(super) const SIGN: [SignTable; {len(signs)}] = [")
    for alpha, stages, error in signs:
        print("    SignTable {")
        print(f"        alpha: {alpha},\n        error_log2: {bits(error)},\n        stages: &[")
        for c in stages:
            print("            " + array(numbers(c), 12) + ",")
        print("        ],\n    },")
    print("];\n")
    tables = [("TANH", "`tanh(range x)`, `|x| <= 1`", [(r, d, "odd") for r, d in ((2, 7), (4, 15), (4, 31), (8, 31))])]
    tables.append(("INVERSE", "`range / x` of `t = (2 x - 1 - range) / (1 - range)`, x from `range` to 1", [(r, d, "whole") for r, d in ((0.25, 15), (0.0625, 31))]))
    for name, what, rows in tables:
        print(f"/// {what}.\npub(super) const {name}: [Table; {len(rows)}] = [")
        for r, d, kind in rows:
            if kind == "odd":
                degrees = list(range(1, d + 1, 2))
                c, error = minimax(lambda x: tanh(r * x), degrees, Decimal(0), ONE)
            else:
                degrees = list(range(d + 1))
                r = Decimal(r)
                c, error = minimax(lambda t: 2 * r / (1 + r + (1 - r) * t), degrees, -ONE, ONE)
            print(f"    Table {{\n        range: {float(r)!r},\n        error_log2: {bits(error)},")
            print("        coefficients: " + array(numbers(c), 8) + ",\n    },")
        print("];" + ("\n" if name == "TANH" else ""))


if __name__ == "__main__":
    main()
