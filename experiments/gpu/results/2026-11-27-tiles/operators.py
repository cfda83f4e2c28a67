#!/usr/bin/env python3
"""What operators of recorded steps take on the GPU and what they were priced at before today, by kind of step and
tokens: each operator's share of the step's time and how far off its price was, for those of 1 % or more.

Usage: operators.py OPS...     (ops.txt of operators.tar.gz: a line S for a step, then one O for each operator)
"""
import bisect
import collections
import sys

EDGES = (32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12000)


def main(paths):
    sums = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0]))
    for path in paths:
        with open(path, encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words[0] == "S":
                    facts = dict(zip(words[2::2], map(float, words[3::2])))
                    step = sums[words[1], bisect.bisect_left(EDGES, facts["tok"])]
                else: # kind, name, size, rows, executions, price, what the clock stretches of it, between events, shared out
                    price, stretched, _, measured = map(float, words[-4:])
                    operator = step[words[1], words[-7]]
                    operator[0] += price + stretched * facts["stretch"]
                    operator[1] += measured
    for (kind, at), step in sorted(sums.items()):
        whole = sum(measured for _, measured in step.values())
        priced = sum(price for price, _ in step.values())
        end = f"to {EDGES[at]}" if at < len(EDGES) else "more"
        print(f"{kind} {end}: {100 * (priced / whole - 1):+.1f} %; " + ", ".join(
            f"{name} {size} {100 * measured / whole:.1f} % of it {100 * (price / measured - 1):+.0f} %"
            for (name, size), (price, measured) in step.items() if measured >= 0.01 * whole))


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) > 1 else sys.exit(__doc__)
