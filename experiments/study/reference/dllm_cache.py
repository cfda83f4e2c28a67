"""Tokens that dLLM-Cache decodes (arXiv 2506.06295), written down anew from what its released code does.

Run from the repository root:  python3 experiments/study/reference/dllm_cache.py

It decodes the prompts of tests/golden/engine/dllm-cache/prompts.jsonl (ids of the first ten of
experiments/train/prompts/easy.jsonl) with the checkpoint experiments/train/models/llada-2m in float32 on
the CPU, under every setting below, and writes the tokens to tokens.jsonl beside
the prompts, a line for each setting. tests/live/test_live_released.c holds the engine to them.

With --released FOLDER, a clone of github.com/maomaocun/dLLM-cache, the layers are run by that code's own
hook and decoded by its own loop instead, nothing is written, and what differs from the file is printed:
with each prompt that differs, how near the last row that was taken and the first one that was not have
been to each other in the comparisons before. Its hook wants as many heads of keys as of queries, so that
those of the checkpoint are repeated for it, which changes no number but by rounding; and it chooses by
cosines in single precision, in which rows that hardly changed are ties.

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64; released code at commit 17235bf.
"""

import argparse
import json
import os
import struct
import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F

MODEL = "experiments/train/models/llada-2m"
FOLDER = "tests/golden/engine/dllm-cache"
# Then such at which old features change tokens.
SETTINGS = [(intervals, ratio) for intervals in ((1, 1), (100, 7), (25, 5)) for ratio in (0.0, 0.25, 1.0)] + \
    [(intervals, ratio) for intervals in ((64, 64), (5, 64), (20, 20)) for ratio in (0.0, 0.05)]
OUTPUT_TOKENS, BLOCK_TOKENS = 64, 32


def read_weights(folder):
    """All tensors of model.safetensors in float32, by name."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    types = {"BF16": torch.bfloat16, "F32": torch.float32}
    weights = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            first, end = (8 + size + at for at in entry["data_offsets"])
            tensor = torch.frombuffer(bytearray(data[first:end]), dtype=types[entry["dtype"]])
            weights[name] = tensor.reshape(entry["shape"]).float()
    return weights


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class Model:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json")) as file:
            self.config = SimpleNamespace(**json.load(file))
        c = self.config
        self.heads, self.kv_heads, self.head_dim = c.n_heads, c.n_kv_heads, c.d_model // c.n_heads
        self.weights = read_weights(folder)
        self.layers = [self.layer(i) for i in range(c.n_layers)]
        theta = c.rope_theta ** (-torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim)
        angles = torch.arange(c.max_sequence_length, dtype=torch.float64)[:, None] * theta
        self.cos, self.sin = (torch.cat([f(angles)] * 2, -1).float() for f in (torch.cos, torch.sin))

    def layer(self, i):
        at = f"model.transformer.blocks.{i}."
        return SimpleNamespace(**{name[len(at):-len(".weight")]: value
                                  for name, value in self.weights.items() if name.startswith(at)})

    def embed(self, ids):
        return self.weights["model.transformer.wte.weight"][ids]

    def logits(self, x):
        x = rms(x, self.weights["model.transformer.ln_f.weight"], self.config.rms_norm_eps)
        return x @ self.weights["model.transformer.ff_out.weight"].T

    def rotated(self, x, positions):
        """[T, H, D] at positions [T]."""
        half = self.head_dim // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * self.cos[positions][:, None] + turned * self.sin[positions][:, None]

    def queries(self, layer, normed, positions):
        q = (normed @ layer.q_proj.T).view(-1, self.heads, self.head_dim)
        return self.rotated(rms(q, layer.q_norm, self.config.rms_norm_eps), positions)

    def keys(self, layer, normed, positions):
        k = (normed @ layer.k_proj.T).view(-1, self.kv_heads, self.head_dim)
        return self.rotated(rms(k, layer.k_norm, self.config.rms_norm_eps), positions)

    def attention(self, layer, q, k, v):
        group = self.heads // self.kv_heads
        k, v = (x.view(-1, self.kv_heads, self.head_dim).repeat_interleave(group, 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.head_dim ** 0.5
        out = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
        return out.flatten(1) @ layer.attn_out.T

    def ffn(self, layer, x):
        normed = rms(x, layer.ff_norm, self.config.rms_norm_eps)
        return (F.silu(normed @ layer.ff_proj.T) * (normed @ layer.up_proj.T)) @ layer.ff_out.T


class Features:
    """What is kept of a request, layer by layer, and the passes that use it."""

    def __init__(self, model, prompt_tokens, intervals, ratio):
        self.model, self.prompt, self.intervals, self.ratio = model, prompt_tokens, intervals, ratio
        self.step = 0
        self.kept = [SimpleNamespace(k=None, v=None, attention=None, ffn=None) for _ in model.layers]

    def rows(self, n, renews_prompt, renews_output, normed, layer, kept):
        """Positions that run in this layer; the values of all compared ones are renewed on the way."""
        prompt, output = torch.arange(self.prompt), torch.arange(self.prompt, n)
        of_prompt = prompt if renews_prompt else prompt[:0]
        if renews_output:
            return torch.cat([of_prompt, output])
        if self.ratio == 0:
            return of_prompt
        fresh = normed[output] @ layer.v_proj.T
        near = F.cosine_similarity(fresh.double(), kept.v[output].double(), dim=-1)
        moved = int(len(output) * self.ratio)
        kept.v[output] = fresh
        return torch.cat([of_prompt, self.prompt + near.argsort(stable=True)[:moved].sort().values])

    def forward(self, ids):
        model, n = self.model, len(ids)
        x = model.embed(ids)
        renews = [self.step % interval == 0 for interval in self.intervals]
        for i, (layer, kept) in enumerate(zip(model.layers, self.kept)):
            normed = rms(x, layer.attn_norm, model.config.rms_norm_eps)
            if self.step == 0:
                width = model.kv_heads * model.head_dim
                kept.k, kept.v = torch.zeros(n, model.kv_heads, model.head_dim), torch.zeros(n, width)
                kept.attention, kept.ffn = torch.zeros_like(x), torch.zeros_like(x)
            whole = i == 0
            rows = self.rows(n, whole or renews[0], whole or renews[1], normed, layer, kept)
            kept.k[rows] = model.keys(layer, normed[rows], rows)
            kept.v[rows] = normed[rows] @ layer.v_proj.T
            q = model.queries(layer, normed[rows], rows)
            kept.attention[rows] = model.attention(layer, q, kept.k, kept.v)
            x = x + kept.attention
            kept.ffn[rows] = model.ffn(layer, x[rows])
            x = x + kept.ffn
        self.step += 1
        return model.logits(x)


def decode(model, prompt, forward, probabilities_of=lambda logits: logits.double().softmax(-1)):
    """One position a step, the most likely one of the first block with a mask (LLaDA's low-confidence
    remasking). Most probabilities are within rounding of 1, so that in single precision many are equal."""
    mask, n = model.config.mask_token_id, len(prompt)
    canvas = torch.tensor(prompt + [mask] * OUTPUT_TOKENS)
    for step in range(OUTPUT_TOKENS):
        first = n + step // BLOCK_TOKENS * BLOCK_TOKENS
        probabilities = probabilities_of(forward(canvas)[first:first + BLOCK_TOKENS])
        sure, token = probabilities.max(-1)
        sure[canvas[first:first + BLOCK_TOKENS] != mask] = -1
        at = int(sure.argmax())
        canvas[first + at] = token[at]
    return canvas[n:].tolist()


# ---- the released code ----


class Module(torch.nn.Module):
    """A function as a module."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *arguments):
        return self.call(*arguments)


class Rotation(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.config = model, model.config

    def get_rotary_embedding(self, n, device):
        return self.model.sin[None, None, :n], self.model.cos[None, None, :n]

    def apply_rotary_pos_emb(self, sin, cos, x):
        half = x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Block(torch.nn.Module):
    """The parts of a layer by the names that the released hook reaches for."""

    def __init__(self, model, i):
        super().__init__()
        layer, eps, dim, group = model.layers[i], model.config.rms_norm_eps, model.head_dim, \
            model.heads // model.kv_heads
        self.config = SimpleNamespace(**vars(model.config), effective_n_kv_heads=model.heads,
                                      attention_dropout=0.0)
        self.layer_id, self._activation_checkpoint_fn = i, None
        self.attn_norm = Module(lambda x: rms(x, layer.attn_norm, eps))
        self.ff_norm = Module(lambda x: rms(x, layer.ff_norm, eps))
        wide = lambda w: w.view(model.kv_heads, dim, -1).repeat_interleave(group, 0).flatten(0, 1)
        k_proj, v_proj = wide(layer.k_proj), wide(layer.v_proj)
        self.q_proj = Module(lambda x: x @ layer.q_proj.T)
        self.k_proj, self.v_proj = Module(lambda x: x @ k_proj.T), Module(lambda x: x @ v_proj.T)
        by_head = lambda x, w: rms(x.view(*x.shape[:-1], -1, dim), w, eps).view(x.shape)
        self.q_norm = Module(lambda x: by_head(x, layer.q_norm))
        self.k_norm = Module(lambda x: by_head(x, layer.k_norm))
        self.attn_out = Module(lambda x: x @ layer.attn_out.T)
        self.ff_proj, self.up_proj = (Module(lambda x, w=w: x @ w.T) for w in (layer.ff_proj, layer.up_proj))
        self.ff_out, self.act = Module(lambda x: x @ layer.ff_out.T), torch.nn.SiLU()
        self.dropout, self.rotary_emb = torch.nn.Identity(), Rotation(model)

    def attention(self):
        raise NotImplementedError  # the hook replaces it, as it does forward

    def forward(self, x):
        raise NotImplementedError

    def _scaled_dot_product_attention(self, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False):
        return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v


class Hooked(torch.nn.Module):
    device = torch.device("cpu")

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.blocks = torch.nn.ModuleList(Block(model, i) for i in range(model.config.n_layers))

    def forward(self, ids, attention_mask=None):
        x = self.model.embed(ids)
        for block in self.blocks:
            x, _ = block(x)
        return SimpleNamespace(logits=self.model.logits(x))


def released(model, folder):
    """decode() by the code in that folder."""
    sys.path.insert(0, folder)
    torch.cuda.empty_cache = lambda: None
    for name in ("transformers", "transformers.cache_utils"):  # asked for by its hook of Dream alone
        sys.modules.setdefault(name, SimpleNamespace(Cache=None))
    from dllm_cache.cache import dLLMCache
    from dllm_cache.hooks import cache_hook_LLaDA as hook
    from utils.generate_function import generate

    hooked = Hooked(model)
    hook.register_cache_LLaDA(hooked, "blocks")
    gaps = []
    refresh_index = hook.refresh_index

    def noting(new, cached, ratio, layer):
        near = F.cosine_similarity(new, cached, dim=-1)[0].sort().values
        n = int(len(near) * ratio)
        if 0 < n < len(near):
            gaps.append(float(near[n] - near[n - 1]))
        return refresh_index(new, cached, ratio, layer)

    hook.refresh_index = noting

    def run(prompt, intervals, ratio):
        dLLMCache.new_instance(intervals[0], intervals[1], 1, ratio)
        gaps.clear()
        tokens = generate(torch.tensor([prompt]), None, hooked, OUTPUT_TOKENS, OUTPUT_TOKENS, BLOCK_TOKENS,
                          mask_id=model.config.mask_token_id)[0].tolist()
        return tokens, (sum(gap == 0 for gap in gaps), len(gaps))

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--released", metavar="FOLDER")
    asked = parser.parse_args()
    model = Model(MODEL)
    with open(os.path.join(FOLDER, "prompts.jsonl")) as file:
        prompts = [json.loads(line)["ids"] for line in file]
    path = os.path.join(FOLDER, "tokens.jsonl")
    torch.set_num_threads(1)
    with torch.no_grad():
        if asked.released:
            run = released(model, asked.released)
            with open(path) as file:
                kept = [json.loads(line) for line in file]
            for (intervals, ratio), line in zip(SETTINGS, kept):
                runs = [run(prompt, intervals, ratio) for prompt in prompts]
                same = sum(tokens == ours for (tokens, _), ours in zip(runs, line["tokens"]))
                ties = sum(tie for _, (tie, _) in runs), sum(n for _, (_, n) in runs)
                differ = [i for i, (tokens, _) in enumerate(runs) if tokens != line["tokens"][i]]
                print(f"{intervals} {ratio}: {same} of {len(prompts)} prompts equal; "
                      f"{ties[0]} of {ties[1]} choices are ties; different: {differ}", flush=True)
            return
        with open(path, "w") as file:
            for intervals, ratio in SETTINGS:
                tokens = [decode(model, prompt, Features(model, len(prompt), intervals, ratio).forward)
                          for prompt in prompts]
                line = dict(prompt_interval_steps=intervals[0], output_interval_steps=intervals[1],
                            transfer_ratio=ratio, tokens=tokens)
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
