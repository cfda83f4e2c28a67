#!/usr/bin/env python3
"""How much the same operator over as many rows differs between a calibration's steps, by how long
events are taken to be: root mean squares in percent, weighted by time, of the fused steps that are
fitted. Of files that have times between events scaled to the step (before 2026-11-26).

Usage: consistency.py calibrate-MODEL.json...
"""
import collections
import json
import sys

LAYERS = 32
ONCE = ("embed", "commit", "sample", "head")


def executions(operators):
    """How often each runs: in every layer, but the first, the last norm and what follows it."""
    norms = 0
    for op in operators:
        norms += (op["operator"], op["size"]) == ("rmsnorm", "16384x0")
        once = op["operator"] in ONCE or op["size"].startswith("126464x") or \
            (op["operator"] == "rmsnorm" and op["size"] == "16384x0" and norms == 2)
        yield op, 1 if once else LAYERS


def factors(step, event_ns):
    runs = [(op, n) for op, n in executions(step["operators"]) if op["measured_ns"] > 0 < op["priced_ns"]]
    stretch = 1 + event_ns * sum(n for _, n in runs) / step["device_ns"]
    for op, n in runs:
        ns = max(op["measured_ns"] * stretch - event_ns * n, 0.05 * op["priced_ns"])
        yield (op["operator"], op["size"], op["rows"]), ns / op["priced_ns"], ns


def difference(steps, event_ns):
    by_operator = collections.defaultdict(list)
    for step in steps:
        for key, factor, ns in factors(step, event_ns):
            by_operator[key].append((factor, ns))
    squares = weights = 0
    for found in by_operator.values():
        weight = sum(ns for _, ns in found)
        mean = sum(factor * ns for factor, ns in found) / weight
        if len(found) > 1:
            squares += sum(ns * (factor / mean - 1) ** 2 for factor, ns in found)
            weights += weight
    return 100 * (squares / weights) ** 0.5


def main(paths):
    events = [us / 2 for us in range(0, 13)]
    print("us an event" + "".join(f"{us:6.1f}" for us in events))
    for path in paths:
        with open(path, encoding="utf-8") as file:
            steps = [step for step in json.load(file)["steps"]
                     if "between_ns" not in step["operators"][0] and step["fused_head"] and not step["held_out"] and step["device_ns"] <= 45e6]
        print("rms, %     " + "".join(f"{difference(steps, 1000 * us):6.2f}" for us in events), path)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
