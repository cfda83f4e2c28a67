"""Times every kernel of one library against the same kernel of another, in one process.

    python3 compare_libraries.py BEFORE NEW OUT.csv [PIECE...]

The shapes, buffers and rounds are those of bench_kernels.py and bench_block.py: every launch that
they time as ours is made in both libraries on the same tensors, and the two take turns, once the
one first and once the other. Peers are left out, and so are products, which go through the
device's table. OUT.csv has a row a shape: its piece, what was timed, microseconds of both, and
their ratio (above 1: the new one is slower).
"""
import collections
import csv
import ctypes as c
import statistics
import sys

import torch

libraries, out, asked = sys.argv[1:3], sys.argv[3], sys.argv[4:]
sys.argv = [sys.argv[0], libraries[1], out]
import bench_kernels as bench

before = c.CDLL(libraries[0])
new, plain_launch, plain_time = bench.lib, bench.launch, bench.time_all
heads = {new: bench.head_handle, before: c.c_void_p()}
for library in (before, new):
    library.head_scratch_bytes.restype = library.block_attention_scratch_bytes.restype = c.c_int64
    if library.head_open(c.byref(heads[library])) != 0:
        raise RuntimeError("head_open")
rows, pieces, piece = [], {}, ""


def launch(name, make, *leading, **tensors):
    bench.lib = before
    own = [heads[before] if argument is bench.head_handle else argument for argument in leading]
    run = plain_launch(name, make, *own, **tensors)
    bench.lib = new
    both = plain_launch(name, make, *leading, **tensors)
    both.before = run
    both.of = name
    return both


def time_all(candidates, eager=()):
    """Both libraries' part of what is to be timed."""
    sides = {}
    for name, runs in candidates.items():
        if runs and all(hasattr(run, "before") for run in runs):
            sides[name] = runs
            sides[name + " before"] = [run.before for run in runs]
    if not sides:
        return collections.defaultdict(lambda: 1.0)
    us, swapped = plain_time(sides), plain_time(dict(reversed(sides.items())))
    us = {name: (us[name] + swapped[name]) / 2 for name in us}
    for name in [name for name in sides if not name.endswith(" before")]:
        ratio = us[name] / us[name + " before"]
        rows.append([piece, f"{sides[name][0].of} {name}", f"{us[name + ' before']:.2f}",
                     f"{us[name]:.2f}", f"{ratio:.4f}"])
    return collections.defaultdict(lambda: 1.0, us)


def report(what, shape, us, *rest, **named):
    for row in rows:
        if len(row) == 5:
            row.insert(1, shape)
            print(f"{row[0]:8s} {shape:28s} {row[2]:44s} {row[3]:>9s} us before {row[4]:>9s} us "
                  f"{row[5]}", flush=True)


bench.launch, bench.time_all, bench.report = launch, time_all, report
bench.main = pieces.update
pieces.update({name: getattr(bench, "bench_" + name) for name in
               ("block", "dense", "norm", "rope", "swiglu", "embed", "add", "keep", "select",
                "sample", "head")})
import bench_block  # noqa: E402,F401: adds its pieces

for piece in asked or [name for name in pieces if name not in ("flex", "focus")]:
    try:
        pieces[piece]()
    except Exception as error:  # one piece's failure must not cost the others' numbers
        print(f"{piece}: {error!r}", flush=True)
    torch.cuda.empty_cache()
    mine = [float(row[-1]) for row in rows if row[0] == piece]
    if mine:
        print(f"{piece}: {len(mine)} shapes, ratio {statistics.geometric_mean(mine):.4f} in the "
              f"geometric mean, {min(mine):.4f} to {max(mine):.4f}", flush=True)
with open(out, "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["piece", "shape", "kernel", "before_us", "new_us", "ratio"])
    table.writerows(row for row in rows if len(row) == 6)
