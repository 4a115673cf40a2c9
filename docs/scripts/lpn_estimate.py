#!/usr/bin/env python3
"""Recomputes the security estimates of docs/parameters.md, section "LPN". Standard library only.

Parameters: k (secret length), beta = 2^h (block length), t (blocks), n = t * beta, over F2, one error per block.
"""
from math import comb, inf, log2

SETS = {"small": (15, 8, 2560), "large": (19, 12, 2560)}
FERRET = (589760, 8192, 1319)


def isd(k, beta, t):
    """log2 of the work of Prange, and of Stern-like enumeration of p errors, for regular noise.

    An information set takes k - t positions (each block's sum is a known parity), spread evenly: a block misses its error
    with probability 1 - v, v = (k - t) / n. One step costs k^2 bit operations (a full elimination would be k^2.8). For
    p errors inside the set the enumeration is counted at the square root of its size (meet in the middle, memory free),
    or k^2, whichever is larger.
    """
    v = (k - t) / (t * beta)
    best = (inf, 0)
    for p in range(0, 41, 2):
        miss = -((t - p) * log2(1 - v) + p * log2(v) + log2(comb(t, p)))
        pairs = (log2(comb(t, p)) + p * log2((k - t) / t)) / 2
        best = min(best, (miss + max(2 * log2(k), pairs), p))
    prange = -t * log2(1 - v)
    return prange + 2 * log2(k), prange + 2.8 * log2(k), best


def coefficient(k, beta, t, d):
    """Coefficient d of (1 + (beta-1) z)^t / (1 + z)^(n-k), beta real: Briaud-Oygarden's Hilbert series over F2; the
    guessed zeros are taken out of beta, the number of parity checks stays."""
    n_checks = checks
    total = 0.0
    for i in range(d + 1):
        total += comb(t, i) * (beta - 1) ** i * (-1) ** (d - i) * comb(n_checks + d - i - 1, d - i)
    return total


def algebraic(k, beta, t):
    """log2 of the work of the hybrid attack: guess g zeros per block, then linearise at degree d with Wiedemann on
    binomial(k', d) columns, 3 columns^2 * 100 (products of two 10-local forms)."""
    global checks
    checks = t * beta - k
    best = (inf, 0, 0.0)
    for d in range(2, 12):
        low, high = 0.0, k / t - 1.0
        if coefficient(k, beta, t, d) > 0:
            for _ in range(60):
                mid = (low + high) / 2
                low, high = (mid, high) if coefficient(k, beta - mid, t, d) > 0 else (low, mid)
        else:
            high = 0.0
        rest = int(k - t - high * t)
        if rest <= d:
            continue
        guess = -t * log2(1 - high / beta)
        work = guess + log2(300) + 2 * (sum(log2((rest - i) / (i + 1)) for i in range(d)))
        best = min(best, (work, d, guess))
    return best


def report(name, k, beta, t):
    fast, full, (stern, p) = isd(k, beta, t)
    work, d, guess = algebraic(k, beta, t)
    print(f"{name}: k={k} beta={beta} t={t} n={t * beta}: ISD k^2/step {fast:.0f}, k^2.8/step {full:.0f}, "
          f"enumerating p={p}: {stern:.0f}; algebraic {work:.0f} (degree {d}, {guess:.0f} bits guessed)")


if __name__ == "__main__":
    report("Ferret", *FERRET)
    for name, (log_k, h, t) in SETS.items():
        report(name, 1 << log_k, 1 << h, t)
