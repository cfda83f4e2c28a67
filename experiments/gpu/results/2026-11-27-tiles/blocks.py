#!/usr/bin/env python3
"""Device time of steps over several blocks of 64 to 160 queries on average, predicted over measured, in the runs
with a prefix cache; by each card's own calibration.

Usage: blocks.py UNMASK GPU FOLDER:PROFILE...     (FOLDER holds grid-*-live.db of one card)
"""
import csv
import glob
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "2026-11-25-grid-96"))
from replayed import data_with  # noqa: E402


def main(unmask, gpu, cards):
    predicted = measured = 0
    for card in cards:
        folder, profile = card.split(":")
        for database in sorted(glob.glob(f"{folder}/grid-fast-dllm-prefix*-live.db")):
            with tempfile.TemporaryDirectory() as data:
                path = os.path.join(data, "steps.csv")
                subprocess.run([unmask, "replay", "--db", database, "--run", "1", "--steps", path],
                               env=data_with(profile, gpu, data), capture_output=True, check=False)
                with open(path, encoding="ascii") as file:
                    for row in csv.DictReader(file):
                        n = int(row["block_n"])
                        if row["kind"] == "reuse" and n > 1 and 64 * n < int(row["block_q"]) <= 160 * n:
                            predicted += int(row["steps"]) * float(row["predicted_device_ns"])
                            measured += int(row["steps"]) * float(row["measured_device_ns"])
    print(f"{gpu}: {100 * (predicted / measured - 1):+.1f} %")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:]) if len(sys.argv) > 3 else sys.exit(__doc__)
