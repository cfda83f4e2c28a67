#!/usr/bin/env python3
"""How well two ranks share a sweep: the time that one rank takes over twice the time of two, four times in turn, and their median.
Both must print the same table. Run by `make bench-ranks`, with MPIRUN and the program as arguments."""
import statistics
import subprocess
import sys
import tempfile
import time

GRID = """[sweep]
systems = dllm-serve, fast-dllm, sparse-dllm, dllm-cache
gpus = l40s
workloads = burst
requests = 12000
rates = 0.2, 0.3, 0.4
seeds = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
"""


def main():
    launch, program = sys.argv[1].split(), sys.argv[2]
    shares = []
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as grid:
        grid.write(GRID)
        grid.flush()
        for _ in range(4):
            took, said = [], []
            for ranks in ("1", "2"):
                start = time.monotonic()
                done = subprocess.run([*launch, "-n", ranks, program, "sweep", grid.name, "-j", "1"], check=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                took.append(time.monotonic() - start)
                said.append(done.stdout)
            if said[0] != said[1]:
                sys.exit("two ranks print another table than one")
            shares.append(took[0] / took[1] / 2)
            print(f"1 rank {took[0]:.1f} s, 2 ranks {took[1]:.1f} s: efficiency {shares[-1]:.2f}", flush=True)
    print(f"median {statistics.median(shares):.2f}")


if __name__ == "__main__":
    main()
