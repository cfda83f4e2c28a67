#!/usr/bin/env python3
"""How long the device waits between two submissions of live runs: from the end of one to the start of
the next that follows at once, while the loop accounts for the one and the scheduler forms the other.
In microseconds, run by run and of all: of a next one that differs from the one before, which is a
profile's `between` row, and of one that is the same requests' same step once more.

Usage: between.py LIVE.db...    (recorded with --levels steps)
"""
import sqlite3
import statistics
import sys

AT_ONCE_NS = 300_000  # what is longer waited for an arrival


def waits(path):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        rows = db.execute("SELECT start_ns, end_ns, symbols, requests, members FROM steps ORDER BY start_ns").fetchall()
    found = {"another": [], "the same": []}
    for before, after in zip(rows, rows[1:]):
        if after[0] - before[1] < AT_ONCE_NS:
            found["the same" if after[2:] == before[2:] else "another"].append((after[0] - before[1]) / 1e3)
    return found


def show(name, found):
    for kind, us in found.items():
        us = sorted(us)
        n = len(us)
        if n > 0:
            print(f"{name:<48} {kind:<9} {n:6d}: mean {statistics.mean(us):5.1f} us, 5th percentile "
                  f"{us[n // 20]:5.1f}, median {us[n // 2]:5.1f}, 95th {us[19 * n // 20]:5.1f}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    everything = {"another": [], "the same": []}
    for path in sys.argv[1:]:
        found = waits(path)
        show(path.rsplit("/", 1)[-1], found)
        for kind, us in found.items():
            everything[kind] += us
    show("all", everything)


if __name__ == "__main__":
    main()
