#!/usr/bin/env python3
"""The grid of decisions.sh: errors of the simulation, ranks of the configurations, regret.

Usage: decisions_table.py OUT
"""
import glob
import json
import os
import sys

FIELDS = {"makespan": ("makespan_s",), "throughput": ("throughput_tok_s",),
          "mean latency": ("latency_s", "mean"), "p99 latency": ("latency_s", "p99"),
          "first block": ("ttfb_s", "mean")}


def field(run, path):
    for key in path:
        run = run[key]
    return run


def tau(pairs):
    """Kendall's tau-a and the widest live gap, in percent, of a pair in the wrong order."""
    agree = all_pairs = 0
    widest = 0.0
    for i, (live_a, sim_a) in enumerate(pairs):
        for live_b, sim_b in pairs[:i]:
            product = (live_a - live_b) * (sim_a - sim_b)
            agree += (product > 0) - (product < 0)
            all_pairs += 1
            if product < 0:
                widest = max(widest, 100 * abs(live_a / live_b - 1))
    return agree / all_pairs, widest


def main():
    out = sys.argv[1]
    names = sorted(os.path.basename(p)[:-len("-live.json")] for p in glob.glob(f"{out}/*-live.json"))
    runs = {}
    for name in names:
        for kind in ("live", "shipped", "fresh"):
            try:
                with open(f"{out}/{name}-{kind}.json", encoding="utf-8") as file:
                    runs[name, kind] = json.load(file)
            except (OSError, ValueError):
                print(f"no result: {name}, {kind}")
    names = [n for n in names if all((n, k) in runs for k in ("live", "shipped", "fresh"))]
    print(f"{'':<28}" + "".join(f"{f:>24}" for f in FIELDS))
    for name in names:
        cells = []
        for path in FIELDS.values():
            live, *sims = (field(runs[name, kind], path) for kind in ("live", "shipped", "fresh"))
            cells.append(f"{live:9.3f} " + " ".join(f"{100 * (s / live - 1):+6.1f}%" for s in sims))
        print(f"{name:<28}" + "".join(f"{c:>24}" for c in cells))
    for kind in ("shipped", "fresh"):
        for label, path in FIELDS.items():
            pairs = [(field(runs[n, "live"], path), field(runs[n, kind], path)) for n in names]
            errors = sorted(100 * (sim / live - 1) for live, sim in pairs)
            rank, widest = tau(pairs)
            best = (max if label == "throughput" else min)
            chosen = best(pairs, key=lambda p: p[1])[0]
            regret = 100 * abs(chosen / best(p[0] for p in pairs) - 1)
            print(f"{kind:<8} {label:<13} errors {errors[0]:+5.1f} to {errors[-1]:+5.1f} %  tau {rank:.2f}  "
                  f"widest pair out of order {widest:.1f} %  regret {regret:.1f} %")


if __name__ == "__main__":
    main()
