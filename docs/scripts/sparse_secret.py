"""A count of hybrid attacks on the sparse secret of bootstrapping (weight 32), for docs/parameters.md.

Guess all but x coefficients of the secret, of which w or fewer are not zero, by meeting in the middle at no cost but the
square root of the number of guesses; reduce the lattice of the other x so far that Babai's algorithm finds the rest, at
2^(0.292 b + 16.4 + log2(8 d)) for block size b and dimension d. Printed: log2 of (reduction + guessing) / probability,
at its smallest over x, w and b. It is kinder to the attacker than the lattice estimator (guesses are compared for
nothing, every near collision is found) and leaves out what the estimator knows better. Standard library only.
"""

import math


def delta(b):
    return (b / (2 * math.pi * math.e) * (math.pi * b) ** (1 / b)) ** (1 / (2 * (b - 1)))


def log2_choose(n, k):
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


def reduction(x, log2_q, b):
    """log2 of the cost, if Babai succeeds on x coefficients after reduction with block size b; else None."""
    log2_delta = math.log2(delta(b))
    d = math.sqrt(x * log2_q / log2_delta)
    d = min(max(d, x + 1), 2 * x + x)
    last = log2_q * (d - x) / d - d * log2_delta
    return 0.292 * b + 16.4 + math.log2(8 * d) if last > math.log2(4 * 3.2) else None


def add(a, b):
    return max(a, b) + math.log2(1 + 2 ** -abs(a - b))


def attack(n, log2_q, h=32):
    best = None
    for x in range(200, min(n, 6000), 50):
        found = next((c for c in (reduction(x, log2_q, b) for b in range(60, 900, 5)) if c), None)
        if not found:
            continue
        probability, guesses = -1e9, -1e9
        for w in range(h + 1):
            probability = add(probability, log2_choose(n - x, w) + log2_choose(x, h - w) - log2_choose(n, h))
            guesses = add(guesses, log2_choose(n - x, w) + w)
            total = add(found, guesses / 2) - min(probability, 0)
            best = min(best or (total, x, w), (total, x, w))
    return best


if __name__ == "__main__":
    for n, log2_q in ((1 << 15, 94), (1 << 15, 101), (1 << 16, 100), (1 << 16, 121)):
        total, x, w = attack(n, log2_q)
        print(f"N = 2^{n.bit_length() - 1}, {log2_q} bits, weight 32: 2^{total:.0f} (x = {x}, w = {w})")
