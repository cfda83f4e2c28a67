"""Tokens that LLaDA2.1's joint threshold decodes, written down anew from its specification
(inclusionAI/LLaDA2.X llada2_1_tech_report.pdf, section 3; what SGLang's JointThreshold does at 17d5721, and with
`steps` diffusers' BlockRefinementScheduler under its LLaDA2Pipeline at 58eb52c).

Run from the repository root:  python3 experiments/study/reference/joint_threshold.py

It decodes the prompts of tests/golden/engine/dllm-cache/prompts.jsonl (ids of the first ten of
experiments/train/prompts/easy.jsonl) with the checkpoint that a setting names in float32 on
the CPU, under every setting below, and writes a line for each setting to
tests/golden/engine/joint-threshold/tokens.jsonl: tokens, forward passes and replaced tokens of each
prompt. tests/live/test_live_revising.c holds the engine to them.

Nothing is cached: a pass runs all that stands before the block, and the block, under the block-causal
mask. A pass of the specification that only stores what the pass before it has left as it was is counted
and not run.

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64.
"""

import json
import os
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from dllm_cache import OUTPUT_TOKENS, read_weights

MODEL = "experiments/train/models/sdar-2m"
EDITED = "experiments/train/models/sdar-2m-all"  # trained to replace tokens
PROMPTS = "tests/golden/engine/dllm-cache/prompts.jsonl"
TOKENS = "tests/golden/engine/joint-threshold/tokens.jsonl"
SETTINGS = [
    dict(threshold=0.5, edit_threshold=0.0),  # S mode
    dict(threshold=0.7, edit_threshold=0.5),  # Q mode
    dict(threshold=0.1, edit_threshold=0.0),  # most tokens are filled too soon
    dict(threshold=0.1, edit_threshold=0.0, max_post_edit_steps=1),
    dict(threshold=0.7, edit_threshold=0.0, zero_edits="off"),  # diffusers' meaning of 0
    dict(threshold=0.1, edit_threshold=0.0, penalty=4.0),
    dict(model=EDITED, threshold=0.5, edit_threshold=0.0),
    dict(model=EDITED, threshold=0.7, edit_threshold=0.5),
    dict(threshold=0.7, edit_threshold=0.5, zero_edits="off", steps=32),  # diffusers' own numbers
    dict(threshold=0.95, edit_threshold=0.5, steps=12),  # shares of 3 and 2 positions
    dict(threshold=0.9, edit_threshold=0.0, steps=5),  # of 7 and 6
    dict(model=EDITED, threshold=0.9, edit_threshold=0.2, steps=8),
    dict(threshold=1.0, edit_threshold=1.0, steps=9),  # by shares alone
    # With a token of the answers for the mask, which the model says before it knows better.
    dict(mask_token=544, threshold=0.3, edit_threshold=1.0),
    dict(mask_token=882, threshold=0.1, edit_threshold=0.0),
    dict(mask_token=544, threshold=1.0, edit_threshold=1.0, steps=16),
]


class Model:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json")) as file:
            self.config = SimpleNamespace(**json.load(file))
        self.weights = read_weights(folder)
        c = self.config
        theta = c.rope_theta ** (-torch.arange(0, c.head_dim, 2, dtype=torch.float64) / c.head_dim)
        angles = torch.arange(c.max_position_embeddings, dtype=torch.float64)[:, None] * theta
        self.cos, self.sin = (torch.cat([f(angles)] * 2, -1).float() for f in (torch.cos, torch.sin))

    def rms(self, x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return x * scale * self.weights[name + ".weight"]

    def times(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def rotated(self, x, positions):
        """[T, H, D]"""
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * self.cos[positions, None] + turned * self.sin[positions, None]

    def attention(self, x, at, sees, positions):
        c, n = self.config, len(x)
        q, k, v = (self.times(x, f"{at}{p}_proj").view(n, -1, c.head_dim) for p in "qkv")
        q, k = (self.rotated(self.rms(t, at + norm), positions) for t, norm in ((q, "q_norm"), (k, "k_norm")))
        group = c.num_attention_heads // c.num_key_value_heads
        k, v = (t.repeat_interleave(group, 1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / c.head_dim ** 0.5
        weights = scores.masked_fill(~sees, float("-inf")).softmax(-1)
        return self.times(torch.einsum("hqk,khd->qhd", weights, v).flatten(1), at + "o_proj")

    def logits(self, ids, rows, sees=None, positions=None):
        """Of the last `rows` ids; which of all see which, [T, T]: None, blocks those before them. Positions: None,
        from 0 on."""
        c = self.config
        positions = torch.arange(len(ids)) if positions is None else positions
        if sees is None:
            block = torch.arange(len(ids)) // c.block_size
            sees = block[:, None] >= block[None, :]
        x = self.weights["model.embed_tokens.weight"][ids]
        for i in range(c.num_hidden_layers):
            at = f"model.layers.{i}."
            x = x + self.attention(self.rms(x, at + "input_layernorm"), at + "self_attn.", sees, positions)
            normed = self.rms(x, at + "post_attention_layernorm")
            gated = F.silu(self.times(normed, at + "mlp.gate_proj")) * self.times(normed, at + "mlp.up_proj")
            x = x + self.times(gated, at + "mlp.down_proj")
        return self.times(self.rms(x[-rows:], "model.norm"), "model.embed_tokens")


def share(n, steps, step):
    """How many of n positions a step from 0 on fills at least, when `steps` of them fill all."""
    steps = min(steps, n)
    return n // steps + (step < n % steps)


def decode_block(model, before, x, threshold, edit_threshold, max_post_edit_steps=16, zero_edits="on",
                 penalty=0.0, steps=0):
    """Fills the block x, in place; returns its passes and how many tokens were replaced. steps: 0, as SGLang."""
    mask = model.config.mask_token_id
    given = x != mask
    edits = (edit_threshold > 0 or zero_edits == "on") and edit_threshold < 1  # 1: without the pass that checks, too
    passes = replaced = post = filling = 0
    finished = False
    while not finished:
        logits = model.logits(torch.cat([before, x]), len(x))
        logits[torch.arange(1, len(x)), x[:-1]] -= penalty
        p, v = logits.softmax(-1).max(-1)
        passes += 1
        masked = x == mask
        fill = torch.zeros_like(masked)
        if masked.any():
            sure = torch.where(masked, p, torch.tensor(-1.0))
            sure[masked & (v == mask)] = -0.5  # would stay masked: after all others
            fill = sure > threshold
            least = min(share(len(x), steps, filling), int(masked.sum())) if steps > 0 else 1
            if fill.sum() < least:
                fill[sure.argsort(descending=True, stable=True)[:least]] = True
            filling += 1
        else:
            post += 1
            if post > max_post_edit_steps:
                break
        edit = ~masked & ~given & (p > edit_threshold) & (v != x) & (v != mask) & edits
        finished = not (fill | edit).any() or (not edits and bool((fill == masked).all()))
        x[fill | edit] = v[fill | edit]
        replaced += int(edit.sum())
        finished = finished or (steps > 0 and filling >= steps and bool(masked.any()))
    return passes + 1, replaced


def decode_canvas(model, prompt, decode_block):
    """The output's tokens, block by block by decode_block(before, x), which fills x in place; the sums of what it returns."""
    block = model.config.block_size
    canvas = torch.tensor(prompt + [model.config.mask_token_id] * OUTPUT_TOKENS)
    of_blocks = [decode_block(canvas[:first], canvas[first:first + block])
                 for first in range(len(prompt) // block * block, len(canvas), block)]
    return canvas[len(prompt):].tolist(), *map(sum, zip(*of_blocks))


def write_tokens(path, settings, names, decode):
    """A line of JSON for each setting: it, and of every prompt what decode(model, prompt, number, setting) counts, by `names`,
    and the tokens, which it returns first."""
    with open(PROMPTS) as file:
        prompts = [json.loads(line)["ids"] for line in file]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.set_num_threads(1)
    with torch.no_grad(), open(path, "w") as file:
        for setting in settings:
            of = {key: value for key, value in setting.items() if key not in ("model", "mask_token")}
            model = Model(setting.get("model", MODEL))
            model.config.mask_token_id = setting.get("mask_token", model.config.mask_token_id)
            tokens, *counts = zip(*(decode(model, prompt, number, of) for number, prompt in enumerate(prompts)))
            file.write(json.dumps({**setting, **dict(zip(names, counts)), "tokens": tokens}) + "\n")


def decode(model, prompt, number, setting):
    return decode_canvas(model, prompt, lambda before, x: decode_block(model, before, x, **setting))


if __name__ == "__main__":
    write_tokens(TOKENS, SETTINGS, ("passes", "replaced"), decode)
