"""Tokens that SparseD decodes (arXiv 2509.24014), written down anew from what its released code does.

Run from the repository root:  python3 experiments/study/reference/sparsed.py

It decodes the prompts of tests/golden/engine/dllm-cache/prompts.jsonl with the checkpoint
experiments/train/models/llada-2m in float32 on the CPU, under every setting below, and writes the tokens to
tests/golden/engine/sparsed/tokens.jsonl, a line for each setting. tests/live/test_live_released.c holds the
engine to them.

With --released FOLDER, a tree of github.com/INV-WZQ/SparseD, each layer's attention is that code's own
method and its own loop decodes, nothing is written, and what differs from the file is printed, with the
nearest that the last block taken and the first one left have been in any choice. Its confidences are
sums in single precision, whose last bits decide between positions that the model is sure of; here they are
right to the last bit, and of prompts that differ it is said for which confidences in double are the cure. FlexAttention, which
PyTorch has from 2.5 on, is stood in for by attention under its mask. A share of 1 the released code cannot
choose (it asks for one block more than there are); here that keeps all.

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64; released code at commit 52155b4.
"""

import argparse
import importlib
import json
import math
import os
import sys
from types import ModuleType, SimpleNamespace

import torch

from dllm_cache import BLOCK_TOKENS, FOLDER, MODEL, OUTPUT_TOKENS, Model, decode, rms

TOKENS = "tests/golden/engine/sparsed/tokens.jsonl"
# (skip, select, pattern_tokens)
SETTINGS = [(0.2, 0.3, 32), (0.2, 0.5, 32), (0.2, 0.3, 128), (0.0, 0.3, 16), (0.0, 0.1, 8), (0.0, 0.0, 4),
            (0.1, 0.5, 5), (0.5, 0.2, 8), (0.29, 0.05, 1), (0.0, 1.0, 16), (1.0, 0.3, 16)]


def rounded(logits):
    """Probabilities to the last bit of single precision, as the engine's are."""
    return logits.double().softmax(-1).float()


def largest(shares, n):
    """[H, B] of shares: which n are the largest of each head, the earlier one on a tie."""
    kept = torch.zeros_like(shares, dtype=torch.bool)
    first = shares.sort(dim=-1, descending=True, stable=True).indices[:, :n]
    return kept.scatter(-1, first, True)


class Patterns:
    """One request: its steps, and for each layer which blocks of keys a head's blocks of queries keep."""

    def __init__(self, model, prompt_tokens, skip, select, tokens):
        self.model, self.prompt, self.select, self.tokens = model, prompt_tokens, select, tokens
        self.step, self.scoring = 0, int(OUTPUT_TOKENS * skip) + 1
        self.kept = [None] * len(model.layers)

    def shares(self, scores):
        """[H, queries, keys] of scores: the softmax over keys, summed over queries and each block of keys."""
        p = scores.softmax(-1).sum(1)
        missing = -p.shape[-1] % self.tokens
        return torch.nn.functional.pad(p, (0, missing)).unflatten(-1, (-1, self.tokens)).sum(-1)

    def choose(self, q, k):
        """[H, B, B]"""
        n, size = len(q), self.tokens
        blocks = -(-n // size)
        rest = min(-(-self.prompt // size), blocks - 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(self.model.heads)
        share = lambda of: min(int(of * self.select) + 1, of)
        rows = []
        for block in scores.split(size, 1):
            before = largest(self.shares(block), share(blocks))
            after = largest(self.shares(block[..., rest * size:]), share(blocks - rest))
            rows.append(torch.cat([before[:, :rest], after], -1))
        return torch.stack(rows, 1)

    def attention(self, i, layer, q, k, v):
        model, n = self.model, len(q)
        group = model.heads // model.kv_heads
        k, v = (x.view(-1, model.kv_heads, model.head_dim).repeat_interleave(group, 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / model.head_dim ** 0.5
        if self.step == self.scoring:
            self.kept[i] = self.choose(q, k)
        if self.step > self.scoring:
            seen = self.kept[i].repeat_interleave(self.tokens, 1).repeat_interleave(self.tokens, 2)
            scores = scores.masked_fill(~seen[:, :n, :n], -math.inf)
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1) @ layer.attn_out.T

    def forward(self, ids):
        return whole_pass(self.model, ids, self)


def whole_pass(model, ids, patterns):
    """All positions through all layers, whose attention is patterns.attention."""
    positions = torch.arange(len(ids))
    x = model.embed(ids)
    for i, layer in enumerate(model.layers):
        normed = rms(x, layer.attn_norm, model.config.rms_norm_eps)
        x = x + patterns.attention(i, layer, model.queries(layer, normed, positions),
                                   model.keys(layer, normed, positions), normed @ layer.v_proj.T)
        x = x + model.ffn(layer, x)
    patterns.step += 1
    return model.logits(x)


# ---- the released code ----


def stand_in(name, **names):
    sys.modules[name] = module = ModuleType(name)
    vars(module).update(names)
    return module


def flex_attention(q, k, v, block_mask):
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return scores.masked_fill(~block_mask, -math.inf).softmax(-1) @ v


def create_block_mask(say, *sizes, device=None, _compile=None):
    at = torch.meshgrid(*(torch.arange(n) for n in sizes), indexing="ij")
    return say(*at)


def import_released(folder):
    """Its modules of LLaDA, with stand-ins for what they import and do not need here."""
    anything = type("Anything", (torch.nn.Module,), {})
    stand_in("transformers", PreTrainedModel=anything, AutoTokenizer=None, AutoModel=None,
             AutoConfig=SimpleNamespace(register=lambda *a: None), PretrainedConfig=object)
    stand_in("transformers.modeling_outputs", CausalLMOutputWithPast=None)
    stand_in("transformers.models", auto=None)
    stand_in("transformers.models.auto", AutoModel=SimpleNamespace(register=lambda *a: None))
    stand_in("transformers.cache_utils", Cache=None)
    stand_in("torch.nn.attention")
    stand_in("torch.nn.attention.flex_attention", _DEFAULT_SPARSE_BLOCK_SIZE=128, create_mask=None,
             create_block_mask=create_block_mask, flex_attention=flex_attention)
    torch._dynamo = stand_in("torch._dynamo", config=SimpleNamespace())
    torch.compile = lambda call, **_: call
    over = torch.all # of several dimensions from 2.2 on
    torch.all = lambda x, dim: over(over(x, -1), -1)
    for name in ("models", "models.LLaDA"):
        stand_in(name).__path__ = [os.path.join(folder, *name.split("."))]
    return importlib.import_module("models.LLaDA.modeling_llada"), \
        importlib.import_module("models.LLaDA.generate")


class Released:
    """whole_pass() with the released method as attention."""

    device = torch.device("cpu")

    def __init__(self, model, modeling):
        self.model, self.modeling, self.step, self.double = model, modeling, 0, False
        self.layers = [self.block(layer) for layer in model.layers]

    def block(self, layer):
        """What the method reads of its layer. The checkpoint's norms of queries and keys are over a head, its own over all
        of them, so that here they come before it."""
        model = self.model
        config = SimpleNamespace(n_heads=model.heads, effective_n_kv_heads=model.kv_heads, rope=True,
                                 attention_dropout=0.0)
        block = SimpleNamespace(config=config, q_norm=None, k_norm=None, flash_attn_func=None, training=False,
                                rotary_emb=lambda q, k: (q, k), attn_out=lambda x: x @ layer.attn_out.T)

        def dense(q, k, v, **_):
            group = q.shape[1] // k.shape[1]
            k, v = (x.repeat_interleave(group, 1) for x in (k, v))
            return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v

        block._scaled_dot_product_attention = dense
        return block

    def attention(self, i, layer, q, k, v):
        method = self.modeling.LLaDABlock.attention
        q, k, v = (x.reshape(1, len(x), -1) for x in (q, k, v))
        # The method divides the channels of q among its heads, and those of k and v alike.
        return method(self.layers[i], q, k, v, SparseD_param=self.param)[0][0]

    def __call__(self, ids, SparseD_param=None):
        self.param = SparseD_param
        logits = whole_pass(self.model, ids[0], self)[None]
        return SimpleNamespace(logits=logits.double() if self.double else logits)


def released(model, folder):
    modeling, loop = import_released(folder)
    called, gaps = Released(model, modeling), []
    topk = torch.topk

    def noting(x, k, **how):
        if x.dim() == 4 and k < x.shape[-1]: # blocks, not tokens; the gap relative to the share
            ranked = x.sort(-1, descending=True).values
            gaps.append(float(((ranked[..., k - 1] - ranked[..., k]) / ranked[..., k - 1]).min()))
        return topk(x, k, **how)

    torch.topk = noting

    def run(prompt, skip, select, tokens, double=False):
        gaps.clear()
        called.double = double
        param = dict(skip=skip, select=select, block_size=tokens, new_generation=OUTPUT_TOKENS,
                     whole_steps=OUTPUT_TOKENS)
        out = loop.generate(called, torch.tensor([prompt]), steps=OUTPUT_TOKENS, gen_length=OUTPUT_TOKENS,
                            block_length=BLOCK_TOKENS, mask_id=model.config.mask_token_id, SparseD_param=param)
        return out[0, len(prompt):].tolist(), min(gaps, default=math.inf)

    return run


def compare(model, prompts, folder):
    run = released(model, folder)
    with open(TOKENS) as file:
        lines = [json.loads(line) for line in file]
    for setting, line in zip(SETTINGS, lines):
        if setting[1] == 1 and setting[0] < 1:
            print(f"{setting}: the released code asks for more blocks than there are", flush=True)
            continue
        runs = [run(prompt, *setting) for prompt in prompts]
        differ = [i for i, (tokens, _) in enumerate(runs) if tokens != line["tokens"][i]]
        tied = [i for i in differ if run(prompts[i], *setting, double=True)[0] == line["tokens"][i]]
        print(f"{setting}: {len(prompts) - len(differ)} of {len(prompts)} prompts equal, nearest choice "
              f"{min(gap for _, gap in runs):.2g}; different: {differ}, by ties of confidences: {tied}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--released", metavar="FOLDER")
    asked = parser.parse_args()
    model = Model(MODEL)
    with open(os.path.join(FOLDER, "prompts.jsonl")) as file:
        prompts = [json.loads(line)["ids"] for line in file]
    torch.set_num_threads(1)
    with torch.no_grad():
        if asked.released:
            compare(model, prompts, asked.released)
            return
        os.makedirs(os.path.dirname(TOKENS), exist_ok=True)
        with open(TOKENS, "w") as file:
            for skip, select, tokens in SETTINGS:
                decoded = [decode(model, prompt, Patterns(model, len(prompt), skip, select, tokens).forward,
                                  rounded) for prompt in prompts]
                line = dict(skip=skip, select=select, pattern_tokens=tokens, tokens=decoded)
                file.write(json.dumps(line) + "\n")


main()
