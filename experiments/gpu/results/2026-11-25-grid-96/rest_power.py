#!/usr/bin/env python3
"""What a card draws at rest at its highest clock, and how high that clock is, by temperature: from
records of NVML (nvml*.csv of 2026-11-23-clocks, -grid and -serving-steps).

Usage: rest_power.py nvml.csv...
"""
import collections
import sys


def rows(path):
    with open(path, encoding="ascii") as file:
        for line in file:
            cells = line.strip().split(",")
            if line[0] not in "#e" and len(cells) == 9:
                yield [float(cell) for cell in cells]


def main(paths):
    for path in paths:
        watts, clocks = collections.defaultdict(list), collections.defaultdict(collections.Counter)
        last, lowest = None, 0
        for _, at, _, _, energy_mj, clock_mhz, _, celsius, _ in rows(path):
            if clock_mhz >= 1965:
                clocks[4 * int(celsius / 4)][int(clock_mhz)] += 1
            lowest = min(lowest, clock_mhz)
            if last is None or energy_mj > last[1]:
                span = at - last[0] if last else 0
                power = (energy_mj - last[1]) / 1000 / span if span > 0 else 0
                if 0.08 < span < 0.3 and lowest >= 1960 and power < 190:
                    watts[int(celsius)].append(power)
                last, lowest = (at, energy_mj), clock_mhz
        print(path)
        print("  C: lowest tenth of watts at rest ", {
            c: round(sorted(found)[len(found) // 10], 1) for c, found in sorted(watts.items()) if len(found) > 15})
        print("  C: share of readings at 1980 MHz ", {
            c: round(found[1980] / sum(found.values()), 2) for c, found in sorted(clocks.items())})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
