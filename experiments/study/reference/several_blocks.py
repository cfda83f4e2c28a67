"""Tokens that D2F, MultiBD and d3LLM decode with several blocks at once, and DSB with a window that slides, written
down anew from their specification (D2F: SJTU-DENG-Lab/Discrete-Diffusion-Forcing, eval_llada.py; MultiBD: Diffulex's engine and its multi_bd sampler;
d3LLM: hao-ai-lab/d3LLM, generate_multi_block, and SGLang's full_attn_multi_block; DSB: lizhuo008/DSB, llada/generate.py).

Run from the repository root:  python3 experiments/study/reference/several_blocks.py

It decodes the prompts of tests/golden/engine/dllm-cache/prompts.jsonl with the checkpoint
experiments/train/models/sdar-2m or the one that a setting names (d3LLM and DSB: llada-2m) in float32 on the CPU, under every setting below, and writes a
line for each setting to tests/golden/engine/several-blocks/tokens.jsonl: tokens, forward passes and positions run of each
prompt. tests/live/test_live_several.c holds the engine to them.

A block is active, then to_cache (decided, as all before it are), then in_cache (stored by the forward after).
Blocks lie at multiples of their length, so that the prompt's last tokens may stand in the first, where they
count as decided. Nothing is cached here: a forward runs all that stands before as well, under the block-causal
mask, which gives the same numbers, since what is stored was decided when it was stored. d3LLM's blocks begin where
the prompt ends, and a forward runs the whole canvas, every position of which sees all. DSB keeps keys and values of
the canvas: all are renewed once as many tokens were committed as its window has, else the window's and some before it.

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64.
"""

import functools

import torch

import dllm_cache
from dllm_cache import OUTPUT_TOKENS, Features
from joint_threshold import EDITED, write_tokens

TOKENS = "tests/golden/engine/several-blocks/tokens.jsonl"
SETTINGS = [
    dict(threshold=0.9, complete=0.95, add=0.1, most=16),  # D2F
    dict(threshold=0.9, complete=0.95, add=0.7, most=16),  # D2F on GSM8K
    dict(threshold=0.95, complete=0.9, add=0.1, most=2, static="on"),  # MultiBD
    dict(threshold=0.9, complete=0.95, add=0.1, most=16, block=8),
    dict(threshold=0.5, complete=0.25, add=0.125, most=4, block=8),
    dict(threshold=0.95, complete=0.9, add=0.1, most=4, block=8, static="on"),
    dict(threshold=0.99, complete=0.5, add=0.0, most=3, block=16, static="on"),
    dict(threshold=0.999, complete=0.25, add=0.25, most=5, block=4),
    dict(threshold=0.9, complete=0.95, add=0.1, most=16, block=8, end=2045),  # D2F with an end of text
    dict(threshold=0.5, complete=0.5, add=0.0, most=3, block=8, end=13),
    dict(threshold=0.95, complete=0.9, add=0.1, most=4, block=8, static="on", end=2045),  # MultiBD with one
    dict(threshold=0.95, complete=0.9, add=0.1, most=2, block=8, static="on", end=2045),  # and a ring that is full
    dict(threshold=0.9, complete=1.0, add=0.1, most=4, block=8, static="on", stability=0.5),
    dict(model=EDITED, threshold=0.9, complete=0.95, add=0.1, most=16),  # trained for two blocks at once
    dict(model=EDITED, threshold=0.95, complete=0.9, add=0.1, most=2, static="on"),
]
SHIFTED_SETTINGS = [
    dict(threshold=0.9, complete=0.95, add=0.1, most=16, shifted="on"),  # D2F-Dream
    dict(threshold=0.9, complete=0.95, add=0.9, most=16, block=8, shifted="on"),
    dict(threshold=0.05, complete=0.25, add=0.125, most=4, block=8, shifted="on"),
    dict(threshold=0.2, complete=0.5, add=0.25, most=5, block=4, shifted="on"),
    dict(threshold=0.95, complete=0.9, add=0.1, most=4, block=8, static="on", shifted="on"),  # MultiBD
    dict(threshold=0.1, complete=0.5, add=0.0, most=3, block=16, static="on", shifted="on"),
    dict(threshold=0.5, complete=0.5, add=0.1, most=3, block=4, end=13, shifted="on"),
    dict(model=EDITED, threshold=0.3, complete=0.95, add=0.1, most=16, shifted="on"),
]


BIDIRECTIONAL = "experiments/train/models/llada-2m"
BIDIRECTIONAL_SETTINGS = [
    dict(entropy=0.45, add=0.1, most=8),  # d3LLM
    dict(entropy=0.4, add=0.1, most=16, block=8),
    dict(entropy=0.01, add=0.5, most=3, block=16),
    dict(entropy=0.05, add=0.0, most=2, block=16),
    dict(entropy=0.4, add=0.1, most=8, block=16, shifted="on"),  # as d3LLM-Dream
    dict(entropy=2.0, add=0.5, most=3, block=8, shifted="on"),
]
SLIDING_SETTINGS = [
    dict(sure=0.9, window=32, prefix=8),  # DSB
    dict(sure=0.9, window=8, prefix=8),
    dict(sure=0.999, window=16, prefix=0),
    dict(sure=0.9, window=8, prefix=24),
    dict(sure=0.9, window=32, prefix=24, most=16),  # DSB, greedy
    dict(sure=0.9, window=8, prefix=8, most=16),
    dict(sure=0.7, window=8, prefix=0, most=2),
    dict(sure=0.9, window=16, prefix=4, shifted="on"),  # as for Dream
    dict(sure=0.5, window=8, prefix=0, most=4, shifted="on"),
]


class Block:
    def __init__(self, first, end):
        self.first, self.end, self.state = first, end, "active"

    def masked(self, x, mask):
        return [i for i in range(self.first, self.end) if x[i] == mask]

    def decided(self, x, mask):
        """As a share, without rounding it."""
        return (self.end - self.first) - len(self.masked(x, mask)), self.end - self.first


def is_far(block, x, mask, share):
    decided, length = block.decided(x, mask)
    return decided >= share * length


def joins(ring, x, mask, add, stability):
    """Whether a block joins after the last one. Of a block whose tokens stay, Diffulex's share of those that did is 1
    once it is complete, and 0 before (engine/scheduler.py)."""
    return not ring or (is_far(ring[-1], x, mask, add) and float(is_far(ring[-1], x, mask, 1)) >= stability)


def decode(model, prompt, threshold, complete, add, most, block=32, static="off", stability=0.0, end=None,
           shifted="off"):
    mask, model.config.block_size = model.config.mask_token_id, block
    x = torch.tensor(prompt + [mask] * OUTPUT_TOKENS)
    start = len(prompt) // block * block
    ahead = [Block(i, min(i + block, len(x))) for i in range(start, len(x), block)]
    ring = []  # blocks that are active or to_cache, in order
    passes = run = 0
    ended = False  # an end of text is decided anywhere: no block joins any more
    while ring or (ahead and not ended):
        while ahead and not ended and len(ring) < most and joins(ring, x, mask, add, stability):
            ring.append(ahead.pop(0))
        dummies = ahead[:most - len(ring)] if static == "on" else []
        stop = (dummies or ring)[-1].end
        logits = model.logits(x[:stop], stop)
        if shifted == "on":  # a row says what comes after it. D2F keeps the logits of the last position stored, which
            logits = logits.roll(1, 0)  # sees no block after its own: they are these in every later pass
        logits = logits[ring[0].first:]
        p, v = logits.softmax(-1).max(-1)
        passes, run = passes + 1, run + stop - ring[0].first
        stored = [b for b in ring if b.state == "to_cache"]
        forced = [i == 0 or is_far(ring[i - 1], x, mask, complete) for i in range(len(ring))]
        commits = []
        for b, is_forced in zip(ring, forced):
            masked = b.masked(x, mask)
            at = [i - ring[0].first for i in masked]
            sure = [i for i, r in zip(masked, at) if p[r] > threshold]
            if masked and not sure and is_forced:
                sure = [max(masked, key=lambda i: (p[i - ring[0].first].item(), -i))]
            commits += sure
        for i in commits:
            x[i] = v[i - ring[0].first]
            ended = ended or x[i] == end
        ring = [b for b in ring if b not in stored]
        for i, b in enumerate(ring):
            if not b.masked(x, mask) and all(a.state == "to_cache" for a in ring[:i]):
                b.state = "to_cache"
        if ended and static == "on" and ahead and not any(b.masked(x, mask) for b in ring):
            break  # Diffulex's requests end here; without a ring the last blocks are stored, which no one reads
    tokens = x[len(prompt):].tolist()
    return tokens[:tokens.index(end) + 1] if end in tokens else tokens, passes, run


def decode_together(model, prompt, entropy, add, most, block=32, shifted="off"):
    mask = model.config.mask_token_id
    x = torch.tensor(prompt + [mask] * OUTPUT_TOKENS)
    blocks = [Block(i, min(i + block, len(x))) for i in range(len(prompt), len(x), block)]
    passes = 0
    while blocks:
        active = 1
        while active < min(most, len(blocks)) and is_far(blocks[active - 1], x, mask, add):
            active += 1
        p = Features(model, len(prompt), (1, 1), 0).forward(x).log_softmax(-1)
        if shifted == "on":  # a row says what comes after it; the first position is the prompt's
            p = p.roll(1, 0)
        of, v = -(p.exp() * p).sum(-1), p.argmax(-1)
        passes += 1
        commits = [i for b in blocks[:active] for i in b.masked(x, mask) if of[i] < entropy]
        if not any(i < blocks[0].end for i in commits):
            commits.append(min(blocks[0].masked(x, mask), key=lambda i: (of[i].item(), i)))
        for i in commits:
            x[i] = v[i]
        while blocks and not blocks[0].masked(x, mask):
            blocks.pop(0)
    return x[len(prompt):].tolist(), passes, passes * len(x)


class Kept:
    """Keys and values of a canvas, some of which a forward renews."""

    def __init__(self, model, n):
        self.model = model
        self.k = [torch.zeros(n, model.kv_heads, model.head_dim) for _ in model.layers]
        self.v = [torch.zeros(n, model.kv_heads * model.head_dim) for _ in model.layers]

    def forward(self, ids, first, end):
        model, rows = self.model, torch.arange(first, end)
        x = model.embed(ids[rows])
        for layer, k, v in zip(model.layers, self.k, self.v):
            normed = dllm_cache.rms(x, layer.attn_norm, model.config.rms_norm_eps)
            k[rows], v[rows] = model.keys(layer, normed, rows), normed @ layer.v_proj.T
            x = x + model.attention(layer, model.queries(layer, normed, rows), k, v)
            x = x + model.ffn(layer, x)
        return model.logits(x)


def decode_sliding(model, prompt, sure, window, prefix, most=1, shifted="off"):
    mask = model.config.mask_token_id
    x = torch.tensor(prompt + [mask] * OUTPUT_TOKENS)
    kept, first, since = Kept(model, len(x)), len(prompt), window
    passes = run = moved = 0
    while first < len(x):
        decided = sum(i != mask for i in x[len(prompt):].tolist())
        end = min(len(prompt) + window + decided, first + most * window, len(x))
        start, stop = (0, len(x)) if since >= window else (max(first - max(prefix, moved), 0), end)
        since = 0 if since >= window else since
        p, v = kept.forward(x, start, stop).softmax(-1).max(-1)
        if shifted == "on":  # a row says what comes after it; the first that runs stands in for the one before it
            p, v = torch.cat([p[:1], p[:-1]]), torch.cat([v[:1], v[:-1]])
        passes, run = passes + 1, run + stop - start
        masked = [i for i in range(first, end) if x[i] == mask]
        commits = [i for i in masked if p[i - start] >= sure]
        for i in commits or [max(masked, key=lambda i: (p[i - start].item(), -i))]:
            x[i] = v[i - start]
            since += 1
        moved = first
        while first < len(x) and x[first] != mask:
            first += 1
        moved = first - moved
    return x[len(prompt):].tolist(), passes, run


@functools.cache
def bidirectional():
    return dllm_cache.Model(BIDIRECTIONAL)


def decode_by(model, prompt, _number, setting):
    if "entropy" in setting:
        return decode_together(bidirectional(), prompt, **setting)
    if "window" in setting:
        return decode_sliding(bidirectional(), prompt, **setting)
    return decode(model, prompt, **setting)


if __name__ == "__main__":
    settings = SETTINGS + SHIFTED_SETTINGS + BIDIRECTIONAL_SETTINGS + SLIDING_SETTINGS
    write_tokens(TOKENS, settings, ("passes", "run"), decode_by)
