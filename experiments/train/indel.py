"""How often a model trained with insertion and deletion puts blocks in disarray in order.

  indel.py FOLDER [--task hops] [--limit 64] [--threshold 0.5] [--edit 0] [--fixed]

The engine runs the decoder (`joint-indel`) from masks. Here blocks begin as the solutions of held-out problems with tokens
left out, added and changed (data.moved), and the plain implementation that the engine is held to decodes them
(experiments/study/reference/joint_indel.py). Prints restored solutions, passes by kind, tokens replaced, dropped and
inserted. --fixed: the same without tokens that drop or insert, as LLaDA2.1's joint threshold replaces.
"""

import argparse
import json
import os
import sys
from collections import Counter
from random import Random

import torch

import data
import decode
from model import BLOCK

sys.path.insert(0, os.path.join(data.HERE, "..", "study", "reference"))
import joint_indel  # noqa: E402
import joint_threshold  # noqa: E402


class Fixed:
    """The model without its two tokens that drop and insert."""

    def __init__(self, model):
        self.model, self.config = model, model.config

    def logits(self, ids, rows):
        logits = self.model.logits(ids, rows)
        logits[:, [data.DELETE_ID, data.INSERT_ID]] = float("-inf")
        return logits


def restore(model, prompt, tokens, setting, r):
    """Whether blocks in disarray come to be the solution's tokens; and what it took."""
    stream, counts = tokens + [data.END_ID] * 4 * BLOCK, Counter()
    n_output = len(tokens) + 1 + -(len(prompt) + len(tokens) + 1) % BLOCK
    canvas = torch.tensor(prompt + [data.MASK_ID] * n_output)
    for first in range(len(prompt) // BLOCK * BLOCK, len(canvas), BLOCK):
        given = max(len(prompt) - first, 0)
        at, x = first + given - len(prompt), canvas[first:first + BLOCK]
        x[given:] = torch.tensor(data.moved(stream[at:at + 2 * BLOCK], BLOCK - given, r)[0])
        for name, n in zip(("passes", "replaced", "dropped", "inserted"),
                           joint_indel.decode_block(model, canvas[:first], x, setting, given)):
            counts[name] += n
        if data.END_ID in x[given:].tolist():
            break
    written = canvas[len(prompt):].tolist()
    return decode.cut(written)[0] == tokens, counts


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("folder")
    ap.add_argument("--task", default="hops")
    ap.add_argument("--limit", type=int, default=64)
    ap.add_argument("--threshold", type=float, default=0.5)
    ap.add_argument("--edit", type=float, default=0.0)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    model, tk = joint_threshold.Model(args.folder), data.load_tokenizer(args.folder)
    setting = dict(threshold=args.threshold, edit_threshold=args.edit, delete=data.DELETE_ID, insert=data.INSERT_ID)
    r, counts, right = Random(1), Counter(), 0
    with torch.no_grad():
        source = data.Source(None)
        for problem in [source.draw(r, args.task, held_out=True) for _ in range(args.limit)]:
            is_restored, of = restore(Fixed(model) if args.fixed else model, tk.encode(problem.prompt).ids,
                                      tk.encode(problem.solution).ids, setting, r)
            right, counts = right + is_restored, counts + of
    low, high = decode.wilson(right, args.limit)
    print(json.dumps(dict(task=args.task, n=args.limit, restored=right, low=round(low, 3), high=round(high, 3), **counts)))


if __name__ == "__main__":
    main()
