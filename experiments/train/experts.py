"""How many experts of a layer a trained router hits: over a block's tokens, over a batch of blocks, over a prompt.

  experts.py FOLDER [--tasks gsm,lookup] [--limit 48] [--threshold 0.9] [--out FILE.json]

Decodes held-out problems and counts, in each pass, the different experts that a block's rows choose, and those of 2, 4, ...
blocks drawn at random out of all passes of all requests, as a server that batches continuously would have them together, beside what chance says, E (1 - (1 - A / E)^n) for n tokens, and what the simulator's rule says: n tokens of one block count as
n^exponent choices at random, and blocks like some experts better than others (sim/model/routing.h). The exponent comes out of one block, the
spread out of two. "apart" is the same with blocks that choose independently. "mixed" draws out of all tasks,
as many of each; its block is their mean.
"""

import argparse
import json
import math
import os
from random import Random

import torch

import data
import decode
import export
from model import BLOCK


def chance(shape, draws):
    return shape.experts * (1 - (1 - shape.experts_active / shape.experts) ** draws)


def exponent_of(shape, hits, n):
    """That by which n tokens, counted as n^exponent choices, hit so many."""
    return math.log(math.log(1 - hits / shape.experts) / math.log(1 - shape.experts_active / shape.experts)) / math.log(n)


def spread_of(shape, one, two):
    """Of the beta distribution of experts' chances, of which one block hits so many and two hit so many."""
    missed = 1 - one / shape.experts
    return missed * (1 - missed) / (1 - two / shape.experts - missed ** 2) - 1


def blocks_hit(shape, one, spread, n):
    b = (1 - one / shape.experts) * spread
    return shape.experts * (1 - math.exp(math.lgamma(b + n) - math.lgamma(b) + math.lgamma(spread) - math.lgamma(spread + n)))


class Counter:
    """Means of counts, by what was counted; and, of every block in every pass, which experts it hit, [layers, n, E]."""

    def __init__(self):
        self.sums, self.blocks = {}, []

    def add(self, key, hit):
        """hit [..., E], true where an expert is hit: a count of each."""
        counts = hit.sum(-1).flatten()
        total, n = self.sums.get(key, (0, 0))
        self.sums[key] = total + int(counts.sum()), n + len(counts)

    def take(self, other, r, most=1000):
        """As many blocks of each task."""
        pool = torch.cat(other.blocks, 1)
        self.blocks.append(pool[:, [r.randrange(pool.shape[1]) for _ in range(most)]])

    def mean(self, key):
        return self.sums[key][0] / self.sums[key][1]

    def keys(self, what):
        return sorted(k[1] for k in self.sums if k[0] == what)


def hit_of(chosen, experts):
    """chosen [B, S, A] to [B, experts]: those that the rows of each hit."""
    flat = chosen.flatten(1)
    return torch.zeros(len(flat), experts, dtype=torch.bool).scatter(1, flat, True)


def count(counter, chosen, masked, experts):
    """chosen: of each layer [B, 32, A], the blocks of B requests in one pass; masked [B, 32]."""
    alive = masked.any(1)  # the others wait for these, and would not run
    masked, chosen = masked[alive], [layer[alive] for layer in chosen]
    share = 4 * masked.sum(1) // BLOCK  # how masked a block is: 0 less than a quarter, 4 wholly
    for layer in chosen:
        hit = hit_of(layer, experts)
        for n in (8, 16, 24, 32):
            counter.add(("tokens", n), hit_of(layer[:, :n], experts))
        for quarter in share.unique().tolist():
            counter.add(("masked", quarter), hit[share == quarter])
    counter.blocks.append(torch.stack([hit_of(layer, experts) for layer in chosen]))


def count_batches(counter, r, groups=500):
    """Blocks that were not in one pass of one batch: drawn out of all."""
    pool = torch.cat(counter.blocks, 1)
    for n in (2, 4, 8, 16, 32):
        for _ in range(groups):
            counter.add(("blocks", n), pool[:, [r.randrange(pool.shape[1]) for _ in range(n)]].any(1))


def measure(net, prompts, threshold):
    shape, counter = net.shape, Counter()
    trunk, state = net.trunk, {}

    def watched(ids, places, attend, *_):
        chosen = []
        x = trunk(ids, places, attend, None, chosen)
        if ids.shape[1] == BLOCK and (ids == data.MASK_ID).any():  # a pass that can commit; others only write
            count(counter, chosen, ids == data.MASK_ID, shape.experts)
        elif ids.shape[1] != BLOCK:  # the prompts' whole blocks, padded behind
            for layer in chosen:
                for row, n in zip(layer, state["lengths"]):
                    for at in range(BLOCK, n // BLOCK * BLOCK + 1, BLOCK):
                        counter.add(("prompt", at), hit_of(row[None, :at], shape.experts))
        return x
    net.trunk = watched
    try:
        for i in range(0, len(prompts), 16):
            some = sorted(prompts[i:i + 16], key=lambda p: -len(p))  # in the order in which decode_blocks takes them
            state["lengths"] = [len(p) for p in some]
            decode.decode(net, some, 160, threshold, most_rows=10 ** 9)
    finally:
        net.trunk = trunk
    return counter


def report(shape, counter, block):
    """block: the experts that one block hits."""
    e = exponent_of(shape, block, BLOCK)
    spread = spread_of(shape, block, counter.mean(("blocks", 2)))
    rows = []

    def row(what, n, tokens):
        blocks = tokens / BLOCK
        rule = chance(shape, tokens ** e) if blocks < 1 else blocks_hit(shape, block, spread, blocks)
        apart = chance(shape, tokens ** e if blocks < 1 else blocks * BLOCK ** e)
        rows.append(dict(what=what, n=n, tokens=tokens, measured=round(counter.mean((what, n)), 2),
                         chance=round(chance(shape, tokens), 2), rule=round(rule, 2), apart=round(apart, 2), counted=counter.sums[what, n][1]))
    for what, tokens in (("tokens", 1), ("masked", None), ("blocks", BLOCK), ("prompt", 1)):
        for n in counter.keys(what):
            row(what, n, BLOCK if tokens is None else n * tokens)
    return dict(experts=shape.experts, active=shape.experts_active, block=BLOCK, block_hits=round(block, 2), exponent=round(e, 4),
                spread=round(spread, 3), rows=rows)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("folder")
    ap.add_argument("--tasks", default="gsm,lookup,add,hops")
    ap.add_argument("--prompts", default=os.path.join(data.HERE, "prompts"), help="folder of TASK.jsonl")
    ap.add_argument("--limit", type=int, default=48, help="problems a task")
    ap.add_argument("--threshold", default="0.9", help="or one; default: 0.9")
    ap.add_argument("--out", help="write the report to this file, JSON")
    args = ap.parse_args()
    net, tk = export.load(args.folder), data.load_tokenizer(args.folder)
    if not net.shape.experts:
        raise SystemExit(f"{args.folder}: no experts")
    threshold = None if args.threshold == "one" else float(args.threshold)
    reports, mixed = {}, Counter()
    for task in [*args.tasks.split(","), "mixed"]:
        counter, block = mixed, sum(r["block_hits"] for r in reports.values()) / max(len(reports), 1)
        if task != "mixed":
            problems = data.read_prompts(os.path.join(args.prompts, task + ".jsonl"))[:args.limit]
            counter = measure(net, [tk.encode(p["prompt"]).ids for p in problems], threshold)
            mixed.take(counter, Random(1))
            block = counter.mean(("tokens", BLOCK))
        count_batches(counter, Random(1))
        reports[task] = report(net.shape, counter, block)
        print(json.dumps({k: v for k, v in reports[task].items() if k != "rows"} | dict(task=task)), flush=True)
        for r in reports[task]["rows"]:
            print(f"  {r['what']:12} {r['n']:4}  {r['tokens']:4} tokens  measured {r['measured']:6.2f}  rule {r['rule']:6.2f}  "
                  f"apart {r['apart']:6.2f}  chance {r['chance']:6.2f}  ({r['counted']} counted)", flush=True)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(dict(model=net.name, threshold=args.threshold, problems=args.limit, tasks=reports), f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
