"""Reference decoding and its right answers.

  decode.py FOLDER [--tasks gsm,pick] [--thresholds one,0.9,0.8,0.7] [--limit 512] [--out FILE.jsonl]

By blocks of 32: a pass commits the most confident masked place of the block and, with a threshold, every place above it. A
bidirectional model runs the whole canvas in each pass, its blocks begin at the prompt's end. A block-causal model's blocks
begin at multiples of 32; what is before a block is kept as keys and values, made in one more pass when a block is done.
"""

import argparse
import json
import math
import os
import time
from dataclasses import dataclass, field
from functools import partial

import torch

import data
import export
import model as models
import tasks
from model import BLOCK


@dataclass
class Decoded:
    ids: list = field(default_factory=list)  # the output, up to the first end of text, which it has not
    ended: bool = False
    passes: int = 0  # that could commit something
    commits: int = 0  # places, the ends of text included


def choose(logits, masked, threshold):
    """logits [B, n, V], masked [B, n]: the tokens and which of them are committed now."""
    logits[..., data.MASK_ID] = float("-inf")
    confidence, token = torch.softmax(logits, -1).max(-1)
    confidence = confidence.masked_fill(~masked, -1.0)
    take = torch.zeros_like(masked).scatter(1, confidence.argmax(1, keepdim=True), True)
    if threshold is not None:
        take |= confidence > threshold
    return token, take & masked


def cut(ids):
    return (ids[:ids.index(data.END_ID)], True) if data.END_ID in ids else (ids, False)


@torch.no_grad()
def decode_canvases(net, prompts, n_output, threshold, most_rows):
    """Bidirectional: prompts of similar lengths together, most_rows canvas rows at a time."""
    device = net.cos.device
    out = [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    while order:
        S = len(prompts[order[0]]) + n_output
        group, order = order[:max(1, most_rows // S)], order[max(1, most_rows // S):]
        alive = torch.tensor(group, device=device)
        start = torch.tensor([len(prompts[i]) for i in group], device=device)
        ids = torch.tensor([prompts[i] + [data.MASK_ID] * n_output + [data.PAD_ID] * (S - len(prompts[i]) - n_output)
                            for i in group], device=device)
        passes, commits = torch.zeros_like(start), torch.zeros_like(start)
        for block in range(0, n_output, BLOCK):
            at = start[:, None] + torch.arange(block, min(block + BLOCK, n_output), device=device)
            S = int(start.max()) + n_output
            ids = ids[:, :S].contiguous()
            places = torch.arange(S, device=device).expand(len(ids), S)
            mask = (places < start[:, None] + n_output)[:, None, None, :].expand(-1, 1, S, S)
            while bool((ids.gather(1, at) == data.MASK_ID).any()):
                masked = ids.gather(1, at) == data.MASK_ID
                x = net.trunk(ids, places, models.dense_attention(mask))
                x = x.gather(1, at[..., None].expand(-1, -1, x.shape[-1]))
                token, take = choose(net.logits(x), masked, threshold)
                ids.scatter_(1, at, torch.where(take, token, ids.gather(1, at)))
                passes += masked.any(1)
                commits += take.sum(1)
            last = block + BLOCK >= n_output
            done = (ids.gather(1, at) == data.END_ID).any(1) | last
            for r in done.nonzero().flatten().tolist():
                text, ended = cut(ids[r, int(start[r]):int(start[r]) + n_output].tolist())
                out[int(alive[r])] = Decoded(text, ended, int(passes[r]), int(commits[r]))
            alive, start, ids, passes, commits = (t[~done] for t in (alive, start, ids, passes, commits))
            if len(alive) == 0:
                break
    return out


class Blocks:
    """Block-causal: keys and values of what is before each prompt's block."""

    def __init__(self, net, prompts, n_output):
        s, device = net.shape, net.cos.device
        self.net, B = net, len(prompts)
        self.length = torch.tensor([len(p) for p in prompts], device=device)
        self.end = self.length + n_output
        S = -(-(int(self.end.max())) // BLOCK) * BLOCK
        self.ids = torch.tensor([p + [data.MASK_ID] * (S - len(p)) for p in prompts], device=device)
        self.kv = torch.zeros(s.layers, 2, B, s.kv_heads, S, s.head_dim, dtype=net.dtype, device=device)
        self.begin = self.length // BLOCK * BLOCK  # of the block at hand
        P = int(self.begin.max())
        if P > 0:  # the prompts' whole blocks; what is written past a prompt's is not read before it is written again
            at = torch.arange(P, device=device)
            sees = (at[:, None] // BLOCK >= at // BLOCK).expand(B, 1, P, P)

            def attend(i, q, k, v):
                self.kv[i, 0, :, :, :P], self.kv[i, 1, :, :, :P] = k, v
                return models.dense_attention(sees)(q, k, v)
            net.trunk(self.ids[:, :P], at.expand(B, P), self.by_layer(attend))

    def by_layer(self, attend):
        return [partial(attend, i) for i in range(self.net.shape.layers)]

    def keep(self, rows):
        self.length, self.end, self.ids, self.begin = (t[rows] for t in (self.length, self.end, self.ids, self.begin))
        self.kv = self.kv[:, :, rows]

    def run(self, write):
        """Logits of the block's places; or, with write, its keys and values are kept."""
        B, S = self.ids.shape
        device = self.ids.device
        at = self.begin[:, None] + torch.arange(BLOCK, device=device)
        before = torch.arange(S, device=device) < self.begin[:, None]
        sees = torch.cat((before, at < self.end[:, None]), 1)[:, None, None].expand(-1, 1, BLOCK, -1)
        rows = torch.arange(B, device=device)[:, None]

        def attend(i, q, k, v):
            y = models.dense_attention(sees)(q, torch.cat((self.kv[i, 0], k), 2), torch.cat((self.kv[i, 1], v), 2))
            if write:
                for part, value in ((0, k), (1, v)):
                    self.kv[i, part].transpose(1, 2)[rows, at] = value.transpose(1, 2)
            return y
        x = self.net.trunk(self.ids.gather(1, at), at, self.by_layer(attend))
        return None if write else self.net.logits(x)


@torch.no_grad()
def decode_blocks(net, prompts, n_output, threshold, most_rows):
    out = [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    while order:
        n = max(1, most_rows // (len(prompts[order[0]]) + n_output))
        group, order = order[:n], order[n:]
        b = Blocks(net, [prompts[i] for i in group], n_output)
        alive = torch.tensor(group, device=b.ids.device)
        passes, commits = torch.zeros_like(b.length), torch.zeros_like(b.length)
        while len(alive):
            at = b.begin[:, None] + torch.arange(BLOCK, device=b.ids.device)
            inside = at < b.end[:, None]
            while True:
                now = b.ids.gather(1, at)
                masked = (now == data.MASK_ID) & inside
                if not bool(masked.any()):
                    break
                token, take = choose(b.run(False), masked, threshold)
                b.ids.scatter_(1, at, torch.where(take, token, now))
                passes += masked.any(1)
                commits += take.sum(1)
            done = ((now == data.END_ID) & (at >= b.length[:, None])).any(1) | (b.begin + BLOCK >= b.end)
            for r in done.nonzero().flatten().tolist():
                text, ended = cut(b.ids[r, int(b.length[r]):int(b.end[r])].tolist())
                out[int(alive[r])] = Decoded(text, ended, int(passes[r]), int(commits[r]))
            b.keep(~done)
            alive, passes, commits = alive[~done], passes[~done], commits[~done]
            if len(alive):
                b.run(True)
                b.begin = b.begin + BLOCK
    return out


def decode(net, prompts, n_output=256, threshold=None, most_rows=None):
    most_rows = most_rows or (262144 if net.cos.is_cuda else 8192)
    run = decode_blocks if net.shape.is_block_causal else decode_canvases
    return run(net, prompts, n_output, threshold, most_rows)


def wilson(right, n, z=1.96):
    """The 95 % interval of a share."""
    if n == 0:
        return 0.0, 1.0
    p = right / n
    mid, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (mid - half) / (1 + z * z / n), (mid + half) / (1 + z * z / n)


def summary(problems, texts, outputs):
    right = [tasks.is_right(text, p["answer"]) for text, p in zip(texts, problems)]
    low, high = wilson(sum(right), len(right))
    passes, tokens = sum(o.passes for o in outputs), sum(len(o.ids) + o.ended for o in outputs)
    return dict(n=len(right), right=sum(right), accuracy=round(sum(right) / len(right), 4), low=round(low, 4),
                high=round(high, 4), tokens_per_pass=round(tokens / max(passes, 1), 3),
                commits_per_pass=round(sum(o.commits for o in outputs) / max(passes, 1), 3), passes_per_answer=round(passes / len(right), 2),
                tokens_per_answer=round(tokens / len(right), 1), not_ended=sum(not o.ended for o in outputs))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("folder")
    ap.add_argument("--tasks", default=",".join(data.TESTS))
    ap.add_argument("--prompts", default=os.path.join(data.HERE, "prompts"), help="folder of TASK.jsonl")
    ap.add_argument("--thresholds", default="one,0.9,0.8,0.7")
    ap.add_argument("--limit", type=int, default=10000, help="of problems a task")
    ap.add_argument("--output-tokens", type=int, default=256)
    ap.add_argument("--seconds", type=float, default=1e9, help="begin nothing later than this")
    ap.add_argument("--out", help="append the lines to this file as well")
    ap.add_argument("--texts", help="append problems and outputs to this file, JSON lines")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = ap.parse_args()
    began = time.time()
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    net, tk = export.load(args.folder, args.device, dtype), data.load_tokenizer(args.folder)
    for setting in args.thresholds.split(","):
        threshold = None if setting == "one" else float(setting)
        chosen = [(t, data.read_prompts(os.path.join(args.prompts, t + ".jsonl"))[:args.limit]) for t in args.tasks.split(",")]
        problems = [p for _, some in chosen for p in some]
        if time.time() - began > args.seconds:
            break
        start = time.time()
        outputs = decode(net, [tk.encode(p["prompt"]).ids for p in problems], args.output_tokens, threshold)
        texts = [tk.decode(o.ids) for o in outputs]
        seconds, at = time.time() - start, 0
        for task, some in chosen:
            part = slice(at, at + len(some))
            at += len(some)
            line = json.dumps(dict(model=net.name, task=task, threshold=setting, **summary(some, texts[part], outputs[part])))
            print(line, flush=True)
            if args.out:
                with open(args.out, "a", encoding="utf-8") as f:
                    f.write(line + "\n")
        print(json.dumps(dict(threshold=setting, seconds=round(seconds, 1))), flush=True)
        if args.texts:
            with open(args.texts, "a", encoding="utf-8") as f:
                for p, text, o in zip(problems, texts, outputs):
                    f.write(json.dumps(dict(p, threshold=setting, passes=o.passes, right=tasks.is_right(text, p["answer"]),
                                            output=o.ids, text=text), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
