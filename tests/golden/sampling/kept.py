"""What a temperature, top_k and top_p keep of rows of logits, as the samplers released with SDAR and
LMDeploy do it (divide, top_k, softmax of what is left, cumulative sums), in NumPy and double
precision: writes kept.txt. Rows in which a sum comes within 1e-4 of top_p are left out, because
single precision may decide them otherwise."""

import numpy as np

rng = np.random.default_rng(7)
with open("tests/golden/sampling/kept.txt", "w") as out:
    n = 0
    while n < 60:
        temperature = [1, 0.2, 0.5, 0.8, 1.5][rng.integers(5)]
        top_k = [0, 1, 5, 20][rng.integers(4)]
        top_p = [1, 0.1, 0.5, 0.8, 0.9, 0.95][rng.integers(6)]
        logits = np.round(rng.normal(0, 2, rng.integers(2, 65)), 4).astype(np.float32)
        if len(set(logits)) < len(logits):
            continue
        scores = logits.astype(np.float64) / temperature
        order = np.argsort(-scores)
        scores = scores[order]
        if top_k > 0:
            scores[top_k:] = -np.inf
        p = np.exp(scores - scores[0])
        p /= p.sum()
        before = np.cumsum(p) - p
        removed = (before > top_p) | (p == 0)
        removed[0] = False
        if top_p < 1 and np.abs(before - top_p).min() < 1e-4:
            continue
        kept = sorted(order[~removed])
        print(temperature, top_k, top_p, len(logits), *logits, *kept, -1, file=out)
        n += 1
