#!/usr/bin/env python3
"""Recorded steps of live runs at the prices of a profile: the device time of all together and the
median size of a step's error, predicted over measured, for every profile named.

Usage: replayed.py UNMASK GPU FOLDER PROFILE...     (FOLDER holds grid-*-live.db of one card)
"""
import csv
import glob
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", "..", ".."))


def data_with(profile, gpu, folder):
    """The tree's data with that profile in the place of the GPU's own of LLaDA-8B."""
    for name in os.listdir(ROOT):
        if name not in ("kernels", "build", ".git"):
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
    shutil.copytree(os.path.join(ROOT, "kernels", "profiles"), os.path.join(folder, "kernels", "profiles"))
    shutil.copy(profile, os.path.join(folder, "kernels", "profiles", gpu, "llada-8b.csv"))
    return dict(os.environ, UNMASK_DATA=folder)


def steps_of(unmask, database, environment, folder):
    path = os.path.join(folder, "steps.csv")
    if os.path.exists(path):
        os.remove(path)
    subprocess.run([unmask, "replay", "--db", database, "--run", "1", "--steps", path],
                   env=environment, capture_output=True, check=False)
    with open(path, encoding="ascii") as file:
        for row in csv.DictReader(file):
            yield int(row["steps"]), float(row["predicted_device_ns"]), float(row["measured_device_ns"])


def main(unmask, gpu, runs, profiles):
    for profile in profiles:
        with tempfile.TemporaryDirectory() as folder:
            environment = data_with(profile, gpu, folder)
            steps = [step for database in sorted(glob.glob(f"{runs}/grid-*-live.db"))
                     for step in steps_of(unmask, database, environment, folder)]
        predicted = sum(n * ns for n, ns, _ in steps)
        measured = sum(n * ns for n, _, ns in steps)
        error = statistics.median(abs(a / b - 1) for _, a, b in steps)
        print(f"{runs} {profile}: {len(steps)} steps, device time {100 * (predicted / measured - 1):+.2f} %, "
              f"median {100 * error:.2f} %")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
