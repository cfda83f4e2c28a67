#!/usr/bin/env python3
"""Recorded steps of live runs at a profile's prices, by the kind and the tokens of the step: the device time of
all together, predicted over measured, and its share of the runs.

Usage: by_rows.py UNMASK GPU FOLDER:PROFILE...     (FOLDER holds grid-*-live.db of one card; all cards together)
"""
import bisect
import collections
import csv
import glob
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "2026-11-25-grid-96"))
from replayed import data_with  # noqa: E402

EDGES = (32, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12000)


def main(unmask, gpu, cards):
    sums = collections.defaultdict(lambda: [0, 0])
    for card in cards:
        folder, profile = card.split(":")
        for database in sorted(glob.glob(f"{folder}/grid-*-live.db")):
            with tempfile.TemporaryDirectory() as data:
                path = os.path.join(data, "steps.csv")
                subprocess.run([unmask, "replay", "--db", database, "--run", "1", "--steps", path],
                               env=data_with(profile, gpu, data), capture_output=True, check=False)
                with open(path, encoding="ascii") as file:
                    for row in csv.DictReader(file):
                        at = bisect.bisect_left(EDGES, int(row["tokens"]))
                        for kind in (row["kind"], "all"):
                            sums[kind, at][0] += int(row["steps"]) * float(row["predicted_device_ns"])
                            sums[kind, at][1] += int(row["steps"]) * float(row["measured_device_ns"])
    whole = sum(measured for (kind, _), (_, measured) in sums.items() if kind == "all")
    for (kind, at), (predicted, measured) in sorted(sums.items()):
        if measured > 0.004 * whole:
            end = f"to {EDGES[at]}" if at < len(EDGES) else "more"
            print(f"{kind:9} {end:9} {100 * (predicted / measured - 1):+5.1f} %  ({100 * measured / whole:4.1f} %)")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:]) if len(sys.argv) > 3 else sys.exit(__doc__)
