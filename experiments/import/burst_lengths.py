#!/usr/bin/env python3
"""Prompt lengths of BurstGPT by stratified weighting of its two real slices in traces/samples.

The first 400 rows of the trace are conversations to 99.5 %, but the second release of the trace
(BurstGPT_without_fails_2) is API traffic to 97.9 % with a mean of 299.5 tokens in all per request
(its published facts). The dense slice is API traffic, the head slice conversations. Weighting them
0.979 : 0.021 gives a mean total of 298.5 tokens, so the mixture stands for the whole trace where
either slice alone does not. Prints the two lines (input, output) for traces/quantiles.csv.

    python3 experiments/import/burst_lengths.py traces/samples
"""
import csv
import sys

API_SHARE = 0.979  # BurstGPT_without_fails_2, share of rows logged as "API log"


def rows(path):
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if int(row["Response tokens"]) > 0:
                yield int(row["Request tokens"]), int(row["Response tokens"])


def quantile(weighted, p):
    """Inverse of the weighted distribution function, linear between the midpoints of the steps."""
    total = sum(weight for _, weight in weighted)
    points, below = [], 0.0
    for value, weight in weighted:
        points.append(((below + weight / 2) / total, value))
        below += weight
    if p <= points[0][0]:
        return points[0][1]
    for (p0, v0), (p1, v1) in zip(points, points[1:]):
        if p <= p1:
            return v0 + (v1 - v0) * (p - p0) / (p1 - p0)
    return points[-1][1]


def main(folder):
    api = list(rows(f"{folder}/burstgpt_dense120.csv"))
    chat = list(rows(f"{folder}/burstgpt_head400.csv"))
    mean_total = API_SHARE * sum(map(sum, api)) / len(api) + (1 - API_SHARE) * sum(
        map(sum, chat)
    ) / len(chat)
    for side, name in enumerate(("input", "output")):
        weighted = sorted(
            [(row[side], API_SHARE / len(api)) for row in api]
            + [(row[side], (1 - API_SHARE) / len(chat)) for row in chat]
        )
        values = [f"{quantile(weighted, i / 100):.6g}" for i in range(101)]
        print(",".join(["burstgpt_mix", name] + values))
    print(f"mean total {mean_total:.1f} tokens (published: 299.5)", file=sys.stderr)


main(sys.argv[1])
