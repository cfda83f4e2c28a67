#!/usr/bin/env python3
"""What recorded steps over one block of one request (32 tokens) take, predicted over measured, by when
in the run they ran: whether a card gets slower while it works.

Usage: drift.py UNMASK GPU FOLDER PROFILE     (FOLDER holds grid-*-live.db of one card)
"""
import collections
import csv
import glob
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "2026-11-25-grid-96"))
from replayed import data_with  # noqa: E402

ENDS_S = (2, 5, 10, 20, 30, 60, 200)


def main(unmask, gpu, runs, profile):
    sums = collections.defaultdict(lambda: [0, 0, 0])
    for database in sorted(glob.glob(f"{runs}/grid-*-live.db")):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "steps.csv")
            subprocess.run([unmask, "replay", "--db", database, "--run", "1", "--steps", path],
                           env=data_with(profile, gpu, folder), capture_output=True, check=False)
            at_ns = 0
            with open(path, encoding="ascii") as file:
                for row in csv.DictReader(file):
                    n = int(row["steps"])
                    if row["kind"] == "reuse" and row["tokens"] == "32":
                        end = next(s for s in ENDS_S if at_ns <= s * 1e9)
                        sums[end][0] += n * float(row["predicted_device_ns"])
                        sums[end][1] += n * float(row["measured_device_ns"])
                        sums[end][2] += n
                    at_ns += n * float(row["measured_wall_ns"]) + float(row["idle_ns"])
    print(f"{runs}: " + ", ".join(f"to {end} s {100 * (sums[end][0] / sums[end][1] - 1):+.2f} % ({sums[end][2]} steps)"
                                  for end in ENDS_S if sums[end][2] >= 30))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
