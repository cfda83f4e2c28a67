#!/usr/bin/env python3
"""What steps take that are repeated for 17 s, by when, and what nvidia-smi said meanwhile.

Usage: held.py CARD...     (folders of held.tar.gz: hold-K.csv has end in s, mean device time in ns, steps;
smi-hold-17.csv time, multiprocessors' and memory's MHz, W, GPU's and memory's C, why the clock is held down)
"""
import datetime
import glob
import statistics
import sys

NAMES = ("refresh 8x768", "reuse 1x1024", "reuse 32x1024", "refresh 4x512 + reuse 8x512", "refresh 8x768 + reuse 32x1024")
ENDS_S = (0.2, 0.4, 1, 2, 4, 6, 8, 10, 12, 14, 16, 17.2)


def watched(path):
    with open(path, encoding="ascii") as file:
        for line in file:
            fields = [field.strip() for field in line.split(",")]
            try:
                at = datetime.datetime.strptime(fields[0], "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=datetime.timezone.utc)
                yield at.timestamp(), [float(x) for x in fields[1:6]], int(fields[6], 16)
            except (ValueError, IndexError):
                continue


def main(cards):
    for card in cards:
        rows = list(watched(glob.glob(f"{card}/smi-hold-*.csv")[0]))
        for k, name in enumerate(NAMES):
            with open(f"{card}/hold-{k}.csv", encoding="ascii") as file:
                start = float(file.readline().split()[2])
                held = [tuple(map(float, line.split(","))) for line in file if line.strip()]
            print(f"{card} {name}")
            for begin, end in zip((0,) + ENDS_S, ENDS_S):
                here = [(ns, n) for at, ns, n in held if begin < at <= end]
                seen = [(values, why) for at, values, why in rows if begin <= at - start < end]
                if not here:
                    continue
                text = f"  to {end:4.1f} s {sum(ns * n for ns, n in here) / sum(n for _, n in here) / 1e6:8.3f} ms"
                if seen:
                    mhz, _, watts, gpu, memory = (statistics.mean(values[i] for values, _ in seen) for i in range(5))
                    capped = sum(why == 4 for _, why in seen)
                    text += f"  {mhz:4.0f} MHz {watts:4.0f} W, GPU {gpu:.0f} C, memory {memory:.0f} C, power cap in {capped} of {len(seen)} samples"
                print(text)
            first, last = ([(ns, n) for at, ns, n in held if begin < at <= end] for begin, end in ((0.4, 2.5), (10, 99)))
            first, last = (sum(ns * n for ns, n in part) / sum(n for _, n in part) for part in (first, last))
            print(f"  from 10 s on over 0.4 to 2.5 s: {100 * (last / first - 1):+.1f} %")


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) > 1 else sys.exit(__doc__)
