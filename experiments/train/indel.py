"""Decoding with insertion and deletion (LLaDA2.2's report, section 3.1; SGLang's JointThresholdInDel) in PyTorch. The engine
runs it as `joint-indel`, from masks alone: here a block may begin with a disordered solution, too, and control tokens are barred.

  indel.py FOLDER [--tasks easy,hops] [--limit 64] [--threshold 0.5] [--edit 0] [--fixed] [--disarray]

Prints a line a task: right answers, tokens a pass, passes by kind, tokens replaced, inserted and deleted. --fixed: the joint
threshold, which moves nothing (LLaDA2.1). A mask is never filled by one of the two control tokens. --disarray: blocks do not
begin as masks, but as the solution with tokens left out, added and changed (data.moved): how often is it put in order?
"""

import argparse
import json
import os
from collections import Counter
from random import Random

import torch

import data
import decode
import export
import tasks
from model import BLOCK

MOST_POST = 16  # steps without a mask of the block's start that may edit


class Block:
    """A block's places from `given` on: their tokens, and which of them are masks of its start or were put in since."""

    def __init__(self, ids, given, moves):
        self.ids, self.given, self.moves = ids, given, moves
        self.original = [i == data.MASK_ID for i in ids]
        self.seen, self.tried = {tuple(ids)}, {}
        self.post = self.updates = 0
        self.counts = Counter()

    def choose(self, logits):
        """For each place its most likely token that may stand there, and how sure the model is of it."""
        logits = logits.clone()
        logits[:, data.MASK_ID] = float("-inf")
        p = logits.softmax(-1)
        for i, token in enumerate(self.ids):
            barred = [] if self.moves and token != data.MASK_ID else [data.DELETE_ID, data.INSERT_ID]
            p[i, barred + list(self.tried.get(i, ()))] = 0
        sure, tokens = p.max(-1)
        return tokens.tolist(), sure.tolist()

    def fills(self, sure, threshold):
        masked = [i for i in range(self.given, BLOCK) if self.ids[i] == data.MASK_ID]
        if not any(self.original[i] for i in masked):
            return masked
        need = 1 + sum(not self.original[i] for i in masked) if self.moves else 1
        above = [i for i in masked if sure[i] > threshold]
        return above if len(above) >= need else sorted(masked, key=lambda i: -sure[i])[:need]

    def rebuilt(self, changes):
        """The block after the changes, a token each by place."""
        out = [(t, False) for t in self.ids[:self.given]]
        for i in range(self.given, BLOCK):
            token = changes.get(i, self.ids[i])
            is_original = self.original[i] and token == data.MASK_ID
            if token == data.INSERT_ID:
                out += [(data.MASK_ID, False), (self.ids[i], False)]
            elif token != data.DELETE_ID:
                out.append((token, is_original))
        out = (out + [(data.MASK_ID, False)] * BLOCK)[:BLOCK]
        return [t for t, _ in out], [o for _, o in out]

    def step(self, logits, threshold, edit):
        """One pass. False: nothing changed, or no more may."""
        tokens, sure = self.choose(logits)
        changes = {i: tokens[i] for i in self.fills(sure, threshold)}
        kind = "filling" if changes else "editing"
        if not any(self.original):
            self.post += 1
            if self.post > MOST_POST and not changes:
                return False
        if self.post <= MOST_POST and self.updates <= BLOCK + MOST_POST:
            changes.update({i: tokens[i] for i in range(self.given, BLOCK)
                            if self.ids[i] not in (data.MASK_ID, tokens[i]) and sure[i] > edit})
        if not changes:
            self.counts["unchanged"] += 1
            return False
        ids, original = self.rebuilt(changes)
        if tuple(ids) in self.seen:  # it goes in circles: what is least sure was tried there
            i = min(changes, key=lambda i: sure[i])
            self.tried.setdefault(i, set()).add(tokens[i])
        for i, t in changes.items():
            was = self.ids[i] == data.MASK_ID
            self.counts["filled" if was else {data.DELETE_ID: "deleted", data.INSERT_ID: "inserted"}.get(t, "replaced")] += 1
        self.counts[kind] += 1
        self.updates += 1
        self.seen.add(tuple(ids))
        self.ids, self.original = ids, original
        return True


def decode_one(net, prompt, n_output, threshold, edit, moves, start=None):
    """start: what a block begins with, by the place of its first token of the output and how many it has; None: masks."""
    at = decode.Blocks(net, [prompt], n_output)
    counts = Counter()
    while int(at.begin) < int(at.end):
        first, given = int(at.begin), max(len(prompt) - int(at.begin), 0)
        here = slice(first, first + BLOCK)
        if start:
            at.ids[0, first + given:first + BLOCK] = torch.tensor(start(first + given - len(prompt), BLOCK - given))
        block = Block(at.ids[0, here].tolist(), given, moves)
        while block.step(at.run(False)[0].float(), threshold, edit):
            at.ids[0, here] = torch.tensor(block.ids)
        counts += block.counts + Counter(storing=1)
        at.run(True)
        at.begin = at.begin + BLOCK
        if data.END_ID in block.ids[block.given:]:
            break
    text, ended = decode.cut([t for t in at.ids[0, len(prompt):int(at.end)].tolist() if t != data.MASK_ID])
    return text, ended, counts


def disarray(net, tk, n, args):
    """Blocks in disarray of held-out problems of hops: how many blocks, how many then hold what they should."""
    r, counts, right = Random(1), Counter(), 0
    problems = [tasks.generated("hops", r, True) for _ in range(n)]
    for p in problems:
        prompt, tokens = tk.encode(p.prompt).ids, tk.encode(p.solution).ids
        stream = tokens + [data.END_ID] * 4 * BLOCK
        n_output = len(tokens) + 1 + -(len(prompt) + len(tokens) + 1) % BLOCK
        with torch.no_grad():
            ids, _, of = decode_one(net, prompt, n_output, args.threshold, args.edit, not args.fixed,
                                    lambda at, n: data.moved(stream[at:at + 2 * BLOCK], n, r)[0])
        counts += of
        right += ids == tokens
    low, high = decode.wilson(right, n)
    print(json.dumps(dict(task="hops in disarray", n=n, restored=right, low=round(low, 3), high=round(high, 3), **counts)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("folder")
    ap.add_argument("--tasks", default="easy,hops")
    ap.add_argument("--limit", type=int, default=64)
    ap.add_argument("--threshold", type=float, default=0.5)
    ap.add_argument("--edit", type=float, default=0.0)
    ap.add_argument("--output-tokens", type=int, default=96)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--disarray", action="store_true")
    args = ap.parse_args()
    net, tk = export.load(args.folder), data.load_tokenizer(args.folder)
    if args.disarray:
        return disarray(net, tk, args.limit, args)
    for task in args.tasks.split(","):
        problems = data.read_prompts(os.path.join(data.HERE, "prompts", task + ".jsonl"))[:args.limit]
        right = tokens = 0
        counts = Counter()
        for p in problems:
            prompt = tk.encode(p["prompt"]).ids
            n = args.output_tokens + -(len(prompt) + args.output_tokens) % BLOCK  # whole blocks
            with torch.no_grad():
                ids, ended, of = decode_one(net, prompt, n, args.threshold, args.edit, not args.fixed)
            counts += of
            tokens += len(ids) + ended
            right += tasks.is_right(tk.decode(ids), p["answer"])
        passes = sum(counts[k] for k in ("filling", "editing", "unchanged", "storing"))
        low, high = decode.wilson(right, len(problems))
        print(json.dumps(dict(task=task, n=len(problems), right=right, low=round(low, 3), high=round(high, 3),
                              tokens_a_pass=round(tokens / passes, 2), **counts)), flush=True)


if __name__ == "__main__":
    main()
