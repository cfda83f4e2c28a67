#!/usr/bin/env python3
"""Steps of two databases of one configuration by kind and size: their number, mean tokens, device and
host milliseconds, and how far the second's device time is from the first's.

Usage: steps_by_class.py LIVE.db OTHER.db    (both recorded with --levels steps)
"""
import sqlite3
import sys

QUERY = ("SELECT prefill + refresh, reuse, tokens, gpu_ns, host_ns, repeat FROM steps")


def kind(full, reuse, tokens):
    size = reuse if full == 0 else tokens
    limit = 1
    while limit < size:
        limit *= 2
    return ("reuse, requests" if full == 0 else "mixed, tokens" if reuse else "full, tokens", limit)


def read(path):
    sums = {}
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        for full, reuse, tokens, gpu_ns, host_ns, repeat in db.execute(QUERY):
            n = repeat or 1
            row = sums.setdefault(kind(full, reuse, tokens), [0, 0, 0, 0])
            for i, value in enumerate((1, tokens, gpu_ns, host_ns)):
                row[i] += n * value
    return sums


def main():
    live, other = read(sys.argv[1]), read(sys.argv[2])
    for key in sorted(live.keys() | other.keys()):
        line = f"{key[0]:<16} up to {key[1]:5d}"
        for sums in (live, other):
            n, tokens, gpu_ns, host_ns = sums.get(key, (0, 0, 0, 0))
            line += (f" | {n:5d} of {tokens / n:7.1f}: {gpu_ns / n / 1e6:8.3f} + {host_ns / n / 1e6:6.3f} ms"
                     if n else f" | {'-':>39}")
        if key in live and key in other:
            ratio = other[key][2] / other[key][0] / (live[key][2] / live[key][0])
            line += f" | {100 * (ratio - 1):+5.1f} %"
        print(line)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
