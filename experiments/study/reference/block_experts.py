"""Tokens of a mixture whose blocks choose their experts together, written down anew from the specifications (LLaDA2.2:
inclusionAI/LLaDA2.X, LLaDA2_2_tech_report.pdf, section 2.2; dMoE: fscdc/dMoE, modeling_llada2_moe_be_adaptive.py).

Run from the repository root:  /usr/bin/python3 experiments/study/reference/block_experts.py

It writes a checkpoint of random weights in the form of LLaDA2's, ten prompts of random ids, and for every setting below
the tokens and passes that a threshold decodes of them in float32, to tests/golden/engine/block-experts; where a setting names
experiments/train/models/llada2-2m, which was trained so, of ten texts.
tests/live/test_live_block_experts.c holds the engine to them.

Nothing is cached: a pass runs all that stands before the block, and the block, under the block-causal mask.

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64.
"""

import json
import os

import torch
import torch.nn.functional as F

from dllm_cache import read_weights
from make_golden import write_json, write_safetensors

FOLDER = "tests/golden/engine/block-experts"
TRAINED, PROMPTS = "experiments/train/models/llada2-2m", "tests/golden/engine/dllm-cache/prompts.jsonl"
OUTPUT_TOKENS, THRESHOLD = {FOLDER: 24, TRAINED: 64}, {FOLDER: 0.05, TRAINED: 0.9}
CONFIG = dict(model_type="llada2_moe", architectures=["LLaDA2MoeModelLM"], vocab_size=256, rope_theta=10000.0, rms_norm_eps=1e-6,
              mask_token_id=255, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
              intermediate_size=32, max_position_embeddings=512, tie_word_embeddings=False, block_size=8, num_experts=32,
              num_experts_per_tok=4, moe_intermediate_size=8, num_shared_experts=1, first_k_dense_replace=1, n_group=8,
              topk_group=4, norm_topk_prob=True, routed_scaling_factor=2.5, moe_router_enable_expert_bias=True,
              score_function="sigmoid", rotary_dim=8, use_qk_norm=True, use_qkv_bias=False, use_bias=False, use_rmsnorm=True)
SETTINGS = [
    dict(routing="none"),
    dict(routing="largest", experts=4),
    dict(routing="largest", experts=6),  # the share of 48 of 256
    dict(routing="largest", experts=16),
    dict(routing="share", experts=4, share=0.6),
    dict(routing="share", experts=8, share=0.2),
    dict(routing="share", experts=4, share=0.9),
    dict(model=TRAINED, routing="largest", experts=6),  # as it was trained
    dict(model=TRAINED, routing="none"),
    dict(model=TRAINED, routing="share", experts=4, share=0.6),
]


def make_weights(c):
    generator = torch.Generator().manual_seed(29)
    width, qkv = c["hidden_size"], (c["num_attention_heads"] + 2 * c["num_key_value_heads"]) * c["head_dim"]
    shapes = {"model.word_embeddings": (c["vocab_size"], width), "lm_head": (c["vocab_size"], width)}
    norms = ["model.norm"]
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        norms += [at + "input_layernorm", at + "post_attention_layernorm"]
        norms += [at + "attention.query_layernorm", at + "attention.key_layernorm"]
        shapes[at + "attention.query_key_value"] = (qkv, width)
        shapes[at + "attention.dense"] = (width, c["num_attention_heads"] * c["head_dim"])
        mixture = i >= c["first_k_dense_replace"]
        parts = [("mlp.", c["intermediate_size"])]
        if mixture:
            parts = [("mlp.shared_experts.", c["moe_intermediate_size"])]
            parts += [(f"mlp.experts.{e}.", c["moe_intermediate_size"]) for e in range(c["num_experts"])]
            shapes[at + "mlp.gate"] = (c["num_experts"], width)
        for name, size in parts:
            shapes.update({at + name + "gate_proj": (size, width), at + name + "up_proj": (size, width),
                           at + name + "down_proj": (width, size)})
    weights = {}
    for name, shape in shapes.items():
        scale = 1.0 if "embeddings" in name else 1.5 / shape[1] ** 0.5
        weights[name + ".weight"] = torch.randn(shape, generator=generator) * scale
    weights["lm_head.weight"][c["mask_token_id"]] = 0  # not to be chosen
    for name in norms:
        size = c["head_dim"] if "query" in name or "key" in name else width
        weights[name + ".weight"] = 1 + 0.1 * torch.randn(size, generator=generator)
    for i in range(c["first_k_dense_replace"], c["num_hidden_layers"]):
        weights[f"model.layers.{i}.mlp.gate.expert_bias"] = 0.1 * torch.randn(c["num_experts"], generator=generator)
    return {name: w.to(torch.bfloat16) for name, w in weights.items()}


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotated(x, rotary, theta):
    """[T, H, D] at positions 0 .. T - 1, the first `rotary` channels of each head."""
    angles = torch.arange(len(x))[:, None] * theta ** (-torch.arange(0, rotary, 2, dtype=torch.float64) / rotary)
    cos, sin = (torch.cat([f(angles)] * 2, -1).float()[:, None] for f in (torch.cos, torch.sin))
    turn, rest = x[..., :rotary], x[..., rotary:]
    half = rotary // 2
    return torch.cat([turn * cos + torch.cat([-turn[..., half:], turn[..., :half]], -1) * sin, rest], -1)


def admitted(ranks, active, setting):
    """Of a block's scores [T, E], which experts its tokens may choose."""
    if setting["routing"] == "none":
        return torch.ones(ranks.shape[1], dtype=torch.bool)
    if setting["routing"] == "largest":
        votes, keep = ranks.max(0).values, setting["experts"]
    else:
        own = torch.zeros_like(ranks)
        best = ranks.topk(active, -1)
        votes = own.scatter(-1, best.indices, best.values).sum(0)
        votes = votes / votes.sum()
        under = int((votes.sort(descending=True).values.cumsum(0) <= setting["share"]).sum())
        keep = max(min(under + 1, len(votes)), setting["experts"])
    mask = torch.zeros(ranks.shape[1], dtype=torch.bool)
    mask[votes.sort(descending=True, stable=True).indices[:keep]] = True
    return mask


def choose(ranks, may, c):
    """A token's experts, best first: in the groups that stay, then any that may be chosen."""
    ranks, size = ranks.tolist(), len(ranks) // c["n_group"]
    held = [r if ok else float("-inf") for r, ok in zip(ranks, may)]
    groups = [sum(sorted(held[g * size:g * size + size])[-2:]) for g in range(c["n_group"])]
    order = sorted(range(c["n_group"]), key=lambda g: (-groups[g], g))[:c["topk_group"]]
    experts = [e for e in range(len(ranks)) if may[e]]
    return sorted(experts, key=lambda e: (e // size not in order, -ranks[e], e))[:c["num_experts_per_tok"]]


class Model:
    def __init__(self, folder):
        self.folder, self.weights = folder, read_weights(folder)
        with open(os.path.join(folder, "config.json")) as file:
            self.c = json.load(file)

    def times(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def norm(self, x, name):
        return rms(x, self.weights[name + ".weight"], self.c["rms_norm_eps"])

    def swiglu(self, x, at):
        return self.times(F.silu(self.times(x, at + "gate_proj")) * self.times(x, at + "up_proj"), at + "down_proj")

    def attention(self, x, at, sees):
        c, n, size = self.c, len(x), self.c["head_dim"]
        heads = [c["num_attention_heads"], c["num_key_value_heads"], c["num_key_value_heads"]]
        q, k, v = (part.view(n, -1, size) for part in self.times(x, at + "query_key_value").split([h * size for h in heads], -1))
        q, k = (rotated(self.norm(part, at + name), c["rotary_dim"], c["rope_theta"])
                for part, name in ((q, "query_layernorm"), (k, "key_layernorm")))
        k, v = (part.repeat_interleave(heads[0] // heads[1], 1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / size ** 0.5
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(~sees, float("-inf")).softmax(-1), v)
        return self.times(mixed.flatten(1), at + "dense")

    def mixture(self, x, at, block, setting):
        c = self.c
        scores = self.times(x, at + "gate").sigmoid()
        ranks = scores + self.weights[at + "gate.expert_bias"]
        out = self.swiglu(x, at + "shared_experts.")
        gates, ups, downs = (torch.stack([self.weights[f"{at}experts.{e}.{part}_proj.weight"] for e in range(c["num_experts"])])
                             for part in ("gate", "up", "down"))
        gated = F.silu(torch.einsum("tc,efc->tef", x, gates)) * torch.einsum("tc,efc->tef", x, ups)
        each = torch.einsum("tef,ecf->tec", gated, downs)
        for b in range(int(block.max()) + 1):
            rows = (block == b).nonzero().flatten().tolist()
            may = admitted(ranks[rows], c["num_experts_per_tok"], setting).tolist()
            for t in rows:
                experts = choose(ranks[t], may, c)
                shares = scores[t, experts] / (scores[t, experts].sum() + 1e-20) * c["routed_scaling_factor"]
                out[t] = out[t] + shares @ each[t, experts]
        return out

    def logits(self, ids, rows, setting):
        """Of the last `rows` positions."""
        c = self.c
        block = torch.arange(len(ids)) // c["block_size"]
        sees = block[:, None] >= block[None, :]
        x = self.weights["model.word_embeddings.weight"][ids]
        for i in range(c["num_hidden_layers"]):
            at = f"model.layers.{i}."
            x = x + self.attention(self.norm(x, at + "input_layernorm"), at + "attention.", sees)
            normed = self.norm(x, at + "post_attention_layernorm")
            x = x + (self.swiglu(normed, at + "mlp.") if i < c["first_k_dense_replace"]
                     else self.mixture(normed, at + "mlp.", block, setting))
        return self.times(self.norm(x[-rows:], "model.norm"), "model.word_embeddings" if c["tie_word_embeddings"] else "lm_head")


def decode(model, prompt, setting):
    """Tokens, passes with the one that stores a block, and how near a choice was to another one."""
    c, passes, nearest, threshold = model.c, 0, 1.0, THRESHOLD[model.folder]
    size, mask = c["block_size"], c["mask_token_id"]
    x = torch.tensor(prompt + [mask] * OUTPUT_TOKENS[model.folder])
    for first in range(len(prompt) // size * size, len(x), size):
        end = min(first + size, len(x))
        while (x[first:end] == mask).any():
            p, v = model.logits(x[:end], end - first, setting).softmax(-1).topk(2, -1)
            at = [i for i in range(first, end) if x[i] == mask]
            sure = [i for i in at if p[i - first, 0] > threshold]
            ranked = sorted((p[i - first, 0].item() for i in at), reverse=True)
            nearest = min([nearest] + [abs(q - threshold) for q in ranked] + [ranked[0] - q for q in ranked[1:2] if not sure])
            for i in sure or [max(at, key=lambda i: p[i - first, 0].item())]:
                nearest = min(nearest, (p[i - first, 0] - p[i - first, 1]).item())
                x[i] = v[i - first, 0]
            passes += 1
        passes += 1
    return x[len(prompt):].tolist(), passes, nearest


def main():
    os.makedirs(FOLDER, exist_ok=True)
    write_json(f"{FOLDER}/config.json", CONFIG)
    write_safetensors(f"{FOLDER}/model.safetensors", make_weights(CONFIG))
    generator = torch.Generator().manual_seed(31)
    prompts = [torch.randint(0, 250, (3 + 3 * i,), generator=generator).tolist() for i in range(10)]
    with open(f"{FOLDER}/prompts.jsonl", "w") as file:
        for i, prompt in enumerate(prompts):
            file.write(json.dumps({"id": f"random-{i}", "ids": prompt}) + "\n")
    with open(PROMPTS) as file:
        texts = [json.loads(line)["ids"] for line in file]
    models = {FOLDER: (Model(FOLDER), prompts), TRAINED: (Model(TRAINED), texts)}
    torch.set_num_threads(1)
    with torch.no_grad(), open(f"{FOLDER}/tokens.jsonl", "w") as file:
        for setting in SETTINGS:
            model, of = models[setting.get("model", FOLDER)]
            tokens, passes, nearest = zip(*(decode(model, prompt, setting) for prompt in of))
            print(setting, sum(passes), f"nearest choice {min(nearest):.1g}")
            file.write(json.dumps({**setting, "passes": passes, "tokens": tokens}) + "\n")


if __name__ == "__main__":
    main()
