#!/usr/bin/env python3
"""The median of recorded steps' absolute errors, predicted over measured, by the shipped profiles.

Usage: medians.py UNMASK LIVE.db...
"""
import csv
import os
import statistics
import subprocess
import sys
import tempfile


def main(unmask, databases):
    for database in databases:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "steps.csv")
            subprocess.run([unmask, "replay", "--db", database, "--run", "1", "--steps", path],
                           capture_output=True, check=False)
            with open(path, encoding="ascii") as file:
                rows = list(csv.DictReader(file))
        device, wall = (statistics.median(abs(float(row[f"predicted_{time}_ns"]) / float(row[f"measured_{time}_ns"]) - 1)
                                          for row in rows) for time in ("device", "wall"))
        print(f"{database}: {len(rows)} rows, device {100 * device:.2f} %, wall {100 * wall:.2f} %")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:]) if len(sys.argv) > 2 else sys.exit(__doc__)
