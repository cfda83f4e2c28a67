#!/usr/bin/env python3
"""Raises rows of an imported profile that a benchmark's loop timed on a warm cache, once, in the file.

    experiments/import/cold.py GPU.ini PROFILE

GPU.ini says the card that the rows were timed on (sim/model/gpus): its L2 cache and the peak of its memory. PROFILE is
written again: a raised row keeps what was timed in a column of its own, warm=MICROSECONDS, and its time is what it takes
with weights or keys from memory. A file that was raised before is raised anew from what was timed; other lines stay.

aiconfigurator's collector times a product over 6 weights in turn (its collect_gemm.py), experts on one set of weights
and decoding on one set of keys; a step meets each weight once, between all others. The file's line "weights_in_turn"
says how many, of an operator or of its rows of one type, as in "gemm 6, gemm(fp8) 1". Rows whose loop fits into the L2 cache are warm: on the L40S, with 96 MiB, products jump from 1.4 to 0.8
of the memory's peak where six weights cease to fit, and decoding from 1.9 to 0.7 where its keys do. An H100 was timed
both ways (experiments/gpu/results/2026-11-22-h100, cold-products.csv): where six weights do not fit, its imported rows
are what products take cold (0.9 to 1.1 of it), at half of the cache they take 0.8 of it.

A warm row, or one that is faster than memory all the same, is given no less than the straight line in bytes through the
same operator's rows that do read from memory: 3.7 us and 2.93 TB/s for products on the H100, which on weights of 4 and
13 MB is within 3 % of those timed cold. A start is never longer than the warm row itself, and that of experts and of
decoding grows with their sizes: they are given the rate alone.
"""
import configparser
import os
import sys

STREAMING_TOKENS = 16  # rows of more tokens are not bound by the memory alone
SEVERAL_CACHES = 16  # beyond as many caches nothing is seen of a row's start
FEWEST_ROWS = 8  # that make a line
MARK = "warm="
# Columns with sizes, of which GEMM's are m, n, k; decoding's batch, q, kv and its heads; and experts' tokens and shape.
SIZES = {"gemm": 3, "attention_decode": 6, "moe": 5}
TYPE_BYTES = {"bf16": 2.0, "f32": 4.0, "fp8": 1.0, "fp8-bf16": 1.0, "fp8-channel": 1.0}


class Row:
    """One row of an operator that may be raised; `at` is where its line stands among the file's."""

    def __init__(self, at, columns, own_type):
        sizes = 1 + SIZES[columns[0]]
        self.at, self.op, self.sizes, self.rest = at, columns[0], [int(c) for c in columns[1:sizes]], columns[sizes:-1]
        timed = columns[-1]
        if self.rest and self.rest[-1].startswith(MARK):
            timed = self.rest.pop()[len(MARK):]
        self.timed, self.timed_us = timed, float(timed)
        named = bool(self.rest) and self.rest[-1] in TYPE_BYTES
        self.type = self.rest[-1] if named else own_type
        if self.op == "moe" and len(self.rest) - named != 1:
            sys.exit("line %d: a row of experts does not say how many are hit" % (at + 1))

    def streams(self):
        return self.op == "attention_decode" or self.sizes[0] <= STREAMING_TOKENS

    def bytes(self):
        """What one execution reads: weights or keys."""
        stored = TYPE_BYTES[self.type]
        if self.op == "gemm":
            return stored * self.sizes[1] * self.sizes[2]
        if self.op == "moe":
            return 3 * stored * (self.sizes[1] * self.sizes[2]) * float(self.rest[0])
        batch, _, kv, _, kv_heads, head_dim = self.sizes
        return 2 * stored * (batch * kv) * (kv_heads * head_dim)

    def place(self):
        """In the order of the loader's axes, in which sums are taken."""
        first = {"gemm": 0, "moe": 1, "attention_decode": 3}[self.op]
        return self.sizes[first:] + self.sizes[:first]

    def line(self, raised_us):
        columns = [self.op] + self.sizes + self.rest
        columns += [self.timed] if raised_us is None else [MARK + self.timed, repr(raised_us)]
        return ",".join(map(str, columns))


def cold_line(rows, in_turn, l2):
    """Start in us and bytes/us of rows that read from memory, by least squares of relative errors through those whose loop
    is twice as large as the cache and which are not too large; 0 bytes/us: there are too few."""
    n = w = wx = wy = wxx = wxy = 0.0
    for row in rows:
        x, y = row.bytes(), row.timed_us
        if row.streams() and in_turn * x >= 2 * l2 and x <= SEVERAL_CACHES * l2:
            n += 1
            w += 1 / (y * y)
            wx += x / (y * y)
            wy += 1 / y
            wxx += x * x / (y * y)
            wxy += x / y
    spread = w * wxx - wx * wx
    if n < FEWEST_ROWS or spread <= 0:
        return 0.0, 0.0
    slope = (w * wxy - wx * wy) / spread
    start_us = (wy - slope * wx) / w
    if start_us < 0 or slope <= 0:
        return 0.0, wxx / wxy
    return start_us if rows[0].op == "gemm" else 0.0, 1 / slope


def raised_times(rows, in_turn, l2, bandwidth):
    """The rows to raise, by the place of their line: microseconds."""
    start_us, rate = cold_line(sorted(rows, key=Row.place), in_turn, l2)
    raised = {}
    for row in rows if rate > 0 else ():
        is_warm = in_turn * row.bytes() <= l2 or row.bytes() / row.timed_us > 1e-6 * bandwidth
        cold_us = min(start_us, row.timed_us) + row.bytes() / rate
        if is_warm and row.timed_us < cold_us:
            raised[row.at] = cold_us
    return raised


def notes_of(lines):
    pairs = (line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    return {key: value for key, value in pairs}


def raise_file(gpu_path, path):
    gpu = configparser.ConfigParser()
    gpu.read_file(open(gpu_path))
    mib, unit = gpu["gpu"]["l2"].split()
    bandwidth = float(gpu["gpu"]["peak_bandwidth"])
    if unit != "MiB":
        sys.exit("%s: l2 is in %s, expected MiB" % (gpu_path, unit))
    with open(path, newline="") as f:
        lines = [line for line in f.read().split("\n") if not line.startswith("# raised_by: ")]
    notes = notes_of(lines)
    if "weights_in_turn" not in notes:
        sys.exit("%s: no '# weights_in_turn: ' line says over how many weights or keys its rows were timed" % path)
    tables = {}
    for at, line in enumerate(lines):
        if line.split(",", 1)[0] in SIZES:
            row = Row(at, line.split(","), notes.get("dtype", "bf16"))
            tables.setdefault((row.op, row.type), []).append(row)
    n_raised = 0
    in_turn = dict(said.split() for said in notes["weights_in_turn"].split(", "))
    for (op, kind), rows in tables.items():
        times = in_turn.get("%s(%s)" % (op, kind), in_turn.get(op))
        raised = raised_times(rows, float(times), float(mib) * 2 ** 20, bandwidth) if times else {}
        n_raised += len(raised)
        for row in rows:
            lines[row.at] = row.line(raised.get(row.at))
    said = next(i for i, line in enumerate(lines) if line.startswith("# weights_in_turn: "))
    lines.insert(said + 1, "# raised_by: experiments/import/cold.py, for %s MiB of L2 and %g GB/s (%s); warm= is what "
                 "was timed, us" % (mib, bandwidth / 1e9, os.path.basename(gpu_path)))
    with open(path, "w", newline="") as f:
        f.write("\n".join(lines))
    print("%s: %d rows raised" % (path, n_raised))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    raise_file(*sys.argv[1:])
