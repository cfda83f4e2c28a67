"""Tokens that DC+ and FOCUS (arXiv 2601.23278) decode where logits are shifted, in blocks as Fast-dLLM v2's are.

Run from the repository root:  python3 experiments/study/reference/focus_shifted.py

No code was released for this: FOCUS's own serves models whose logits are of their own positions. Here the row before
a position decides on it. DC+ runs that row for as long as the position is masked, as it waits for the right neighbour
anyway; the last row of a block decides on the next block's first position in the pass that finds nothing masked. FOCUS
keeps the position before each one that it selects (its AR context), so that what was selected can be decided.

It decodes the prompts of tests/golden/engine/dllm-cache/prompts.jsonl with the checkpoint
experiments/train/models/sdar-2m in float32 on the CPU, taken as one whose row at a position says what comes after it,
under every setting below, and writes a line for each to tests/golden/engine/focus-shifted/tokens.jsonl: tokens,
forward passes and positions run of each prompt. tests/live/test_live_released.c holds the engine to them.

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64.
"""

import math

import torch
import torch.nn.functional as F

from dllm_cache import OUTPUT_TOKENS
from joint_threshold import write_tokens

TOKENS = "tests/golden/engine/focus-shifted/tokens.jsonl"
SETTINGS = [
    dict(system="dc+", threshold=0.9, block=32),
    dict(system="dc+", threshold=0.05, block=8),
    dict(system="dc+", threshold=0.01, block=4),
    dict(system="focus", threshold=0.9, block=32, alpha=1.5),
    dict(system="focus", threshold=0.05, block=16, alpha=1.0),
    dict(system="focus", threshold=0.01, block=32, alpha=3.0),
    dict(system="focus", threshold=0.05, block=8, alpha=0.5),
]


class Pass:
    """Layers over some positions, whose keys and values are kept by layer and position."""

    def __init__(self, model, n):
        c = self.c = model.config
        self.model, width = model, (c.num_hidden_layers, n, c.num_key_value_heads, c.head_dim)
        self.k, self.v = torch.zeros(width), torch.zeros(width)

    def project(self, layer, x, at):
        """Renews keys and values of positions `at`; their queries."""
        m, name = self.model, f"model.layers.{layer}."
        normed = m.rms(x, name + "input_layernorm")
        q, k, v = (m.times(normed, f"{name}self_attn.{p}_proj").view(len(at), -1, self.c.head_dim) for p in "qkv")
        self.k[layer, at], self.v[layer, at] = m.rotated(m.rms(k, name + "self_attn.k_norm"), at), v
        return m.rotated(m.rms(q, name + "self_attn.q_norm"), at)

    def scores(self, layer, q, at):
        k = self.k[layer, at].repeat_interleave(q.shape[1] // self.k.shape[2], 1)
        return torch.einsum("qhd,khd->hqk", q, k) / self.c.head_dim ** 0.5

    def rest(self, layer, x, q, ends):
        """Attention of each query over the positions before its end, and what follows."""
        m, name, last = self.model, f"model.layers.{layer}.", int(ends.max())
        sees = torch.arange(last)[None, :] < ends[:, None]
        weights = self.scores(layer, q, torch.arange(last)).masked_fill(~sees, float("-inf")).softmax(-1)
        v = self.v[layer, :last].repeat_interleave(q.shape[1] // self.v.shape[2], 1)
        x = x + m.times(torch.einsum("hqk,khd->qhd", weights, v).flatten(1), name + "self_attn.o_proj")
        normed = m.rms(x, name + "post_attention_layernorm")
        gated = F.silu(m.times(normed, name + "mlp.gate_proj")) * m.times(normed, name + "mlp.up_proj")
        return x + m.times(gated, name + "mlp.down_proj")

    def importance(self, layer, q, at):
        """Of masked positions among themselves, scores pooled over three neighbours, summed over heads and queries."""
        pooled = F.max_pool1d(self.scores(layer, q, at).double(), 3, 1, 1)
        return pooled.softmax(-1).sum((0, 1))

    def run(self, canvas, at, ends, masked=None, choose=None):
        """Logits of the positions that go on, and which they are. choose(delta of the masked ones), where some may be
        left out after layer 1's keys and values: which of `at` stay."""
        x = self.model.weights["model.embed_tokens.weight"][canvas[at]]
        growth = 0
        for layer in range(self.c.num_hidden_layers):
            q = self.project(layer, x, at)
            if choose is not None and layer < 2:
                of = self.importance(layer, q[masked], at[masked])
                growth = of - growth
            if choose is not None and layer == 1:
                stay = choose(growth)
                at, x, q = at[stay], x[stay], q[stay]
                ends = torch.full_like(ends[stay], int(at[-1]) + 1)
            x = self.rest(layer, x, q, ends)
        return self.model.times(self.model.rms(x, "model.norm"), "model.embed_tokens"), at


def select(delta, masked, at, first, frontier, mean, alpha):
    """FOCUS's choice among positions `at`, as sim/decode/focus.h has it."""
    n, target = len(delta), min(len(delta), max(1, math.ceil(max(mean, 1) * alpha)))
    stay = torch.ones(len(at), dtype=torch.bool)
    if n <= target:
        return stay
    chosen = delta >= delta.mean() + delta.std(unbiased=False)
    if int(chosen.sum()) < target:
        chosen = torch.zeros(n, dtype=torch.bool)
        chosen[delta.sort(descending=True, stable=True).indices[:target]] = True
    kept = {int(p) for p, is_in in zip(at[masked], chosen) if is_in}
    kept |= {p - 1 for p in kept} & {int(p) for p in at[masked]}  # AR context
    last = max(kept)
    kept |= {int(p) for p in at[masked] if first + frontier < p < last}  # never run this far
    return torch.tensor([not is_masked or int(p) in kept for p, is_masked in zip(at, masked)])


def decode_block(model, pass_, canvas, first, end, threshold, alpha):
    """Fills [first, end), whose first position is decided, and decides on the next block's; passes, positions run."""
    mask = model.config.mask_token_id
    uncached, frontier = torch.ones(end - first, dtype=torch.bool), -1
    steps, commits, passes, run = 0, 0, 0, 0
    while True:
        at = first + uncached.nonzero()[:, 0]
        is_masked = canvas[first:end] == mask
        masked = is_masked[at - first]
        passes, run = passes + 1, run + len(at)
        mean = commits / steps if steps else 1
        choose = None if alpha is None or not masked.any() else \
            lambda delta: select(delta, masked, at, first, frontier, mean, alpha)
        logits, kept = pass_.run(canvas, at, torch.full((len(at),), end), masked, choose)
        frontier = max(frontier, int(kept[-1]) - first)
        rows = {int(p): i for i, p in enumerate(kept)}
        decided = ~is_masked
        neighbour = torch.cat([decided[1:], torch.tensor([end == len(canvas) or bool(decided.all())])])
        uncached[[p - first for p in rows if decided[p - first] and neighbour[p - first]]] = False
        if not masked.any():
            if end < len(canvas):
                canvas[end] = logits[rows[end - 1]].argmax()
            return passes, run
        p, v = logits.double().softmax(-1).max(-1)
        seen = [i for i in rows if is_masked[i - first] and i - 1 in rows]
        sure = [i for i in seen if p[rows[i - 1]].float() >= threshold] or \
            [max(seen, key=lambda i: (p[rows[i - 1]].float().item(), -i))]
        for i in sure:
            canvas[i] = v[rows[i - 1]]
        steps, commits = steps + 1, commits + len(sure)


def decode(model, prompt, system, threshold, block, alpha=None):
    n = len(prompt)
    canvas = torch.tensor(prompt + [model.config.mask_token_id] * OUTPUT_TOKENS)
    pass_, start, passes, run = Pass(model, len(canvas)), n // block * block, 0, 0
    if start > 0:
        at = torch.arange(start)
        logits, _ = pass_.run(canvas, at, at // block * block + block)
        passes, run = 1, start
        if start == n:
            canvas[n] = logits[-1].argmax()
    for first in range(start, len(canvas), block):
        end = min(first + block, len(canvas))
        counts = decode_block(model, pass_, canvas, first, end, threshold, alpha)
        passes, run = passes + counts[0], run + counts[1]
    return canvas[n:].tolist(), passes, run


if __name__ == "__main__":
    write_tokens(TOKENS, SETTINGS, ("passes", "run"),
                 lambda model, prompt, number, setting: decode(model, prompt, **setting))
