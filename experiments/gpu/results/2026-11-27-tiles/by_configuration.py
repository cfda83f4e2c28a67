#!/usr/bin/env python3
"""Errors of the grid's configurations by card, simulated by the card's own calibration over live, and their
ranges with and without those that have a prefix cache.

Usage: by_configuration.py SET...     (folders that again.sh left: grid-NAME-live.json, grid-NAME-fresh.json)
"""
import collections
import glob
import json
import os
import sys

FIELDS = (("makespan", "makespan_s"), ("mean latency", "latency_s", "mean"), ("p99", "latency_s", "p99"),
          ("first block", "ttfb_s", "mean"), ("joules", "energy", "joules_per_answer_token"))


def value(path, keys):
    with open(path, encoding="utf-8") as file:
        run = json.load(file)
    for key in keys:
        run = run[key]
    return run


def main(sets):
    for heading, *keys in FIELDS:
        errors = collections.defaultdict(list)
        for folder in sets:
            for live in sorted(glob.glob(f"{folder}/grid-*-live.json")):
                name = os.path.basename(live)[len("grid-"):-len("-live.json")]
                fresh = live.replace("-live.json", "-fresh.json")
                errors[name].append(100 * (value(fresh, keys) / value(live, keys) - 1))
        print(heading)
        for name, of_cards in errors.items():
            print(f"  {name:28} " + " ".join(f"{error:+5.1f}" for error in of_cards))
        for title, has in (("with a prefix cache", True), ("the others", False)):
            some = [error for name, of_cards in errors.items() if ("prefix" in name) == has for error in of_cards]
            print(f"  {title}: {min(some):+.1f} to {max(some):+.1f} %")


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) > 1 else sys.exit(__doc__)
