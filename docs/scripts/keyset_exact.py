"""Solves the choice behind a key set exactly and compares it with what `tacit keyset design` found.

    tacit keyset design net.tacit -o net
    python3 docs/scripts/keyset_exact.py net.json [BUDGETS]

The file holds the problem: for each class of transforms its plans, each with seconds and the keys that it needs at which
level; a key costs its bytes at the highest level that any chosen plan needs. For budgets of bytes that are spread over the
front (8 unless told), HiGHS (scipy >= 1.9) finds the fewest seconds, and the ratio to the search's front is printed. Exits
with 1 if any ratio is above 1.03.
"""

import json
import sys
import time

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix


def program(problem):
    """Variables: z for each class and plan; then for each key and level that some plan needs, whether it is had at that
    level or above."""
    plans = [(c, p) for c, cls in enumerate(problem["classes"]) for p in range(len(cls["plans"]))]
    needs = lambda c, p: problem["classes"][c]["plans"][p]["needs"]
    levels = {}
    for need in problem["fixed"] + [n for plan in plans for n in needs(*plan)]:
        levels.setdefault(need["key"], set()).add(need["level"])
    steps = [(key, level) for key in sorted(levels) for level in sorted(levels[key])]
    z = {plan: i for i, plan in enumerate(plans)}
    u = {step: len(plans) + i for i, step in enumerate(steps)}
    n = len(plans) + len(steps)
    seconds, sizes = np.zeros(n), np.zeros(n)
    for (c, p), i in z.items():
        seconds[i] = problem["classes"][c]["plans"][p]["seconds"]
    rows, low, high = [], [], []
    for key in levels:
        below = 0
        ascending = sorted(levels[key])
        for a, b in zip(ascending, ascending[1:]):
            # Whoever has the higher level has the lower one.
            rows.append({u[key, a]: 1, u[key, b]: -1}), low.append(0), high.append(np.inf)
        for level in ascending:
            total = problem["keys"][key]["bytes"][level]
            sizes[u[key, level]] = total - below
            below = total
    for c, cls in enumerate(problem["classes"]):
        rows.append({z[c, p]: 1 for p in range(len(cls["plans"]))}), low.append(1), high.append(1)
    for (c, p), i in z.items():
        for need in needs(c, p):
            rows.append({u[need["key"], need["level"]]: 1, i: -1}), low.append(0), high.append(np.inf)
    lower = np.zeros(n)
    for need in problem["fixed"]:
        lower[u[need["key"], need["level"]]] = 1
    matrix = lil_matrix((len(rows), n))
    for i, row in enumerate(rows):
        for j, value in row.items():
            matrix[i, j] = value
    return seconds, sizes, LinearConstraint(matrix.tocsr(), low, high), Bounds(lower, np.ones(n))


def main(path, count=8):
    design = json.load(open(path))
    problem, front = design["problem"], design["front"]
    seconds, sizes, constraint, bounds = program(problem)
    picks = sorted({round(i * (len(front) - 1) / max(count - 1, 1)) for i in range(count)})
    worst = 0.0
    for point in (front[i] for i in picks):
        start = time.time()
        budget = LinearConstraint(sizes[None, :] / 1e6, -np.inf, point["bytes"] / 1e6 + 1e-6)
        found = milp(seconds, constraints=[constraint, budget], bounds=bounds, integrality=np.ones(len(seconds)),
                     options={"time_limit": 120, "mip_rel_gap": 1e-4})
        if found.x is None:
            sys.exit(f"no solution for {point['bytes']} bytes: {found.message}")
        exact = found.fun + problem["fixed_seconds"]
        # Where time ran out the bound stands for the optimum.
        bound = found.mip_dual_bound + problem["fixed_seconds"]
        worst = max(worst, point["seconds"] / bound)
        print(f"{point['bytes'] / 1e6:10.1f} MB: search {point['seconds']:9.4f} s, exact {exact:9.4f} s (bound {bound:9.4f}), "
              f"ratio {point['seconds'] / bound:.4f}, {time.time() - start:.1f} s")
    print(f"worst ratio {worst:.4f} over {len(picks)} budgets, {len(problem['classes'])} classes, {len(seconds)} variables")
    return worst <= 1.03


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1], *map(int, sys.argv[2:3])))
