"""What a step's planning takes in Python and in C, in turn on this machine.

Run from the repository root, with pulp and its cbc; the table goes to standard output as CSV:

    python3 experiments/study/reference/plan_times.py build/unmask [--rounds N]

Python is mosaic_planner.py beside this file, Mosaic's released algorithm written anew; C is this project's planner, as `unmask plan latency`
times it. A row is one round: `step` a search that fits at once and the plan of what it found, `grid` all combinations of up to 18 chunks of
each loop, `exact` the integer program (cbc) or the planner `exact`, which has its peaks (docs/papers/mosaic-planners.md); half of the canvas masked.
Python's own time is processor time, but for the integer program, which waits for cbc; C's is what a clock reads.
"""

import argparse
import csv
import functools
import logging
import os
import subprocess
import sys
import tempfile
import time

import mosaic_planner as mosaic

CANVASES = (1024, 8192, 32768)
SYSTEMS = {"mosaic": "step", "mosaic-bf": "grid", "mosaic-ilp": "exact"}


def python_times(model, tokens):
    exact = functools.partial(mosaic.integer_program, False)
    return {"step": mosaic.median_ms(9, lambda: mosaic.search(model, tokens, 1 << 50), time.process_time),
            "grid": mosaic.median_ms(1, lambda: mosaic.grid(model, tokens), time.process_time),
            "exact": mosaic.median_ms(1, lambda: mosaic.search(model, tokens, 1 << 50, exact), time.perf_counter)}


def c_times(program, model):
    """By canvas and what is planned."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "latency.csv")
        subprocess.run([program, "plan", "latency", "--gpu", "a100-40g", "--model", model, "--systems", ",".join(SYSTEMS), "--canvases",
                        ",".join(map(str, CANVASES)), "--set", "chunk_grid=18", "--csv", path],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(path, newline="") as rows:
            return {(int(row["canvas"]), SYSTEMS[row["system"]]): float(row["plan_ms"]) for row in csv.DictReader(rows)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    mosaic.log.addHandler(logging.StreamHandler(open(os.devnull, "w")))
    mosaic.log.setLevel(logging.INFO)
    print("planner,model,canvas,what,round,ms")
    for model in mosaic.MODELS:
        for i in range(asked.rounds):
            c = c_times(asked.program, model)
            for tokens in CANVASES:
                for what, ms in python_times(model, tokens).items():
                    print(f"Python,{model},{tokens},{what},{i},{ms:.4f}")
                    print(f"C,{model},{tokens},{what},{i},{c[tokens, what]:.6f}")
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
