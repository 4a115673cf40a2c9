#!/usr/bin/env python3
"""Recomputes the security estimates of docs/parameters.md, section "LPN"; fails if a set is below 128 bits.

A set is log2 of the secret length k, log2 of the block length beta, and the number of blocks t: n = t * beta samples over
F2 with one error in every block. Standard library only.
"""
import heapq
import random
from math import comb, inf, log2

SETS = {"small": (14, 7, 1536), "medium": (16, 9, 2048), "large": (17, 10, 2176), "huge": (18, 11, 2176)}
FERRET = (589760, 8192, 1319)  # the one-time set of eprint 2020/924, to compare with


def isd(unknowns, samples, beta, t):
    """log2 of the work of information-set decoding on regular noise: (Prange, a bound with enumeration).

    The information set has so many samples, spread evenly over the blocks: a dense matrix takes k - t (every block's parity is
    known), so that a block's error avoids it with probability 1 - v. Prange: one linear solution per guess, counted as the
    square of the unknowns only (changing one position at a time), without errors inside. Bound: p errors inside, found at the
    square root of their number and with every false collision free; no algorithm is known to be that good (Esser-Santini,
    eprint 2023/1568).
    """
    v = samples / (t * beta)
    prange = -t * log2(1 - v) + 2 * log2(unknowns)
    bound = prange
    for p in range(2, 61, 2):
        hit = log2(comb(t, p)) + p * log2(v) + (t - p) * log2(1 - v)
        half = (log2(comb(t, p)) + p * log2(samples / t)) / 2
        bound = min(bound, -hit + max(2 * log2(unknowns), half))
    return prange, bound


WEIGHT = 10  # ones in a row of A


def peeled(ratio, k=2000, seed=1):
    """Share of the unknowns in the smallest set found that holds as many samples as unknowns, for n = ratio * k samples:
    the unknown in the fewest samples is taken away together with these, again and again."""
    rng = random.Random(seed)
    rows = [{rng.randrange(k) for _ in range(WEIGHT)} for _ in range(ratio * k)]
    samples_of = [[] for _ in range(k)]
    for index, row in enumerate(rows):
        for unknown in row:
            samples_of[unknown].append(index)
    degree = [len(samples) for samples in samples_of]
    heap = [(d, unknown) for unknown, d in enumerate(degree)]
    heapq.heapify(heap)
    alive, left, unknowns, smallest = [True] * len(rows), len(rows), k, k
    gone = [False] * k
    while heap:
        d, unknown = heapq.heappop(heap)
        if gone[unknown] or d != degree[unknown]:
            continue
        gone[unknown], unknowns = True, unknowns - 1
        for index in samples_of[unknown]:
            if alive[index]:
                alive[index], left = False, left - 1
                for other in rows[index]:
                    if not gone[other]:
                        degree[other] -= 1
                        heapq.heappush(heap, (degree[other], other))
        if left >= unknowns > 0:
            smallest = unknowns
    return smallest / k


def sparse(k, beta, t, share):
    """log2 of the work of an attack on the sparse rows: (with random sets of unknowns, with peeled ones).

    All rows that touch nothing but a set of s unknowns, s of them, are guessed to be free of errors and solved (counted as
    s^2): that is s samples where a dense matrix takes k - t. A random set of the share c of the unknowns holds n c^10
    rows. Peeled sets are smaller but much alike, so that guesses are not independent: the second figure favours the attacker.
    """
    n = t * beta
    shares = ((k / n) ** (1 / (WEIGHT - 1)), share)
    return tuple(-t * log2(1 - c * k / n) + 2 * log2(c * k) for c in shares)


def stern(k, beta, t, share):
    """log2 of the bit operations of Stern's algorithm on the rows that touch a share of the unknowns: (work, p, l).

    The s = share * k samples of such rows are the information set, s / t places in each block. An iteration solves for them
    (s^2, one place changed at a time, as above), lists the sums of p / 2 errors in either half of the blocks on l further
    samples (l operations for an entry), and tests each pair that agrees there (2 p: most fail on the first words looked at).
    It succeeds with p errors inside and none among the l; nothing is charged for errors that fall unevenly on the halves.
    """
    s, best = share * k, (inf, 0, 0)
    inside = s / (t * beta)
    for p in range(2, 41, 2):
        hit = log2(comb(t, p)) + p * log2(inside) + (t - p) * log2(1 - inside)
        entries = log2(comb(t // 2, p // 2)) + p / 2 * log2(s / t)
        for l in range(1, 129):
            step = log2(s**2 + 2 * l * 2**entries + 2 * p * 2 ** (2 * entries - l))
            best = min(best, (step - hit - l * log2(1 - 1 / beta), p, l))
    return best


def hilbert(t, beta, checks, degree):
    """Coefficient of z^degree in (1 + (beta - 1) z)^t / (1 + z)^checks: what is left of the monomials after the block
    structure and the parity checks, if these behave as random ones (Briaud-Oygarden, eprint 2023/176)."""
    terms = (comb(t, i) * (beta - 1) ** i * (-1) ** (degree - i) * comb(checks + degree - i - 1, degree - i)
             for i in range(degree + 1))
    return sum(terms)


def algebraic(k, beta, t):
    """(log2 of the work, degree, log2 of the guesses) of the best hybrid algebraic attack.

    It guesses g error-free positions in every block (g real), which takes as many unknowns away, so that the Hilbert series
    stops at `degree`; then solves the Macaulay matrix with Wiedemann's algorithm: 3 * columns^2 * row weight, with
    weight 100 for products of two 10-sparse forms and binomial(unknowns, degree) columns.
    """
    best = (inf, 0, 0.0)
    checks = t * beta - k
    for degree in range(2, 12):
        low, high = 0.0, k / t - 2.0
        if hilbert(t, beta, checks, degree) <= 0:
            high = 0.0
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if hilbert(t, beta - middle, checks, degree) > 0 else (low, middle)
        unknowns = k - t - high * t
        columns = sum(log2(max(unknowns - i, 1) / (i + 1)) for i in range(degree))
        guesses = -t * log2(1 - high / beta)
        best = min(best, (guesses + log2(3 * 100) + 2 * columns, degree, guesses))
    return best


def report(name, k, beta, t):
    prange, bound = isd(k, k - t, beta, t)
    work, degree, guesses = algebraic(k, beta, t)
    share = peeled(round(t * beta / k))
    on_random, on_peeled = sparse(k, beta, t, share)
    by_stern, p, l = stern(k, beta, t, share)
    _, joined = isd(share * k, share * k, beta, t)
    print(
        f"{name}: k={k} beta={beta} t={t} n={t * beta} | Prange {prange:.0f}, ISD bound {bound:.0f} | sparse {on_random:.0f}, peeled {on_peeled:.0f} "
        f"(the bound on it {joined:.1f}), Stern {by_stern:.1f} (p={p}, l={l}) | algebraic {work:.0f} (degree {degree}, {guesses:.0f} bits guessed)"
    )
    return min(bound, on_peeled, by_stern, work)


if __name__ == "__main__":
    report("Ferret", *FERRET)
    for set_name, (log_k, depth, trees) in SETS.items():
        assert report(set_name, 1 << log_k, 1 << depth, trees) >= 128, set_name
