"""Golden vectors for the engine: tiny random checkpoints and the logits PyTorch computes from them.

Run from the repository root:  python3 experiments/study/reference/make_golden.py tests/golden/engine

For a LLaDA-shaped and a Dream-shaped model it writes a checkpoint folder as Hugging Face lays it
out (config.json and safetensors; LLaDA's in bf16 and two shards, Dream's in float32 and one file)
and golden.safetensors: the token ids of one canvas and its logits, computed in float64 from the
stored weights. The layers follow modeling_llada.py (GSAI-ML/LLaDA-8B-Instruct) and
modeling_dream.py (Dream-org/Dream-v0-Instruct-7B): pre-norm RMSNorm in the order scale-then-weight,
rotate-half rotary embedding, full bidirectional attention, SwiGLU, untied head. Dream's biases on
queries, keys and values are the only ones. Dream shifts its logits when it decodes, not here.
"""

import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F

LLADA = dict(layers=2, hidden=32, heads=4, kv_heads=4, head_dim=8, ffn=48, vocab=67, bias=False,
             theta=500000.0, eps=1e-5, tokens=23, seed=1, dtype=torch.bfloat16, shards=2)
DREAM = dict(layers=2, hidden=48, heads=6, kv_heads=2, head_dim=8, ffn=56, vocab=61, bias=True,
             theta=1000000.0, eps=1e-6, tokens=19, seed=2, dtype=torch.float32, shards=1)


def llada_names(layer):
    at = f"model.transformer.blocks.{layer}."
    names = dict(attn_norm="attn_norm", q="q_proj", k="k_proj", v="v_proj", o="attn_out",
                 ffn_norm="ff_norm", gate="ff_proj", up="up_proj", down="ff_out")
    return {key: at + name for key, name in names.items()}


def dream_names(layer):
    at = f"model.layers.{layer}."
    names = dict(attn_norm="input_layernorm", q="self_attn.q_proj", k="self_attn.k_proj",
                 v="self_attn.v_proj", o="self_attn.o_proj", ffn_norm="post_attention_layernorm",
                 gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj")
    return {key: at + name for key, name in names.items()}


LLADA.update(names=llada_names, embed="model.transformer.wte", norm="model.transformer.ln_f",
             head="model.transformer.ff_out", model_type="llada")
DREAM.update(names=dream_names, embed="model.embed_tokens", norm="model.norm", head="lm_head",
             model_type="Dream")


def make_weights(m):
    torch.manual_seed(m["seed"])
    weights = {}

    def matrix(name, rows, columns):
        value = torch.randn(rows, columns, dtype=torch.float64) / math.sqrt(columns)
        weights[name + ".weight"] = value.to(m["dtype"])

    def norm(name):
        value = 1 + 0.2 * torch.randn(m["hidden"], dtype=torch.float64)
        weights[name + ".weight"] = value.to(m["dtype"])

    q_dim, kv_dim = m["heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"]
    matrix(m["embed"], m["vocab"], m["hidden"])
    for layer in range(m["layers"]):
        n = m["names"](layer)
        norm(n["attn_norm"])
        for part, rows in (("q", q_dim), ("k", kv_dim), ("v", kv_dim)):
            matrix(n[part], rows, m["hidden"])
            if m["bias"]:
                bias = 0.3 * torch.randn(rows, dtype=torch.float64)
                weights[n[part] + ".bias"] = bias.to(m["dtype"])
        matrix(n["o"], m["hidden"], q_dim)
        norm(n["ffn_norm"])
        matrix(n["gate"], m["ffn"], m["hidden"])
        matrix(n["up"], m["ffn"], m["hidden"])
        matrix(n["down"], m["hidden"], m["ffn"])
    norm(m["norm"])
    matrix(m["head"], m["vocab"], m["hidden"])
    return weights


def rms_norm(x, weight, eps):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def forward(m, weights, ids):
    w = {name: value.to(torch.float64) for name, value in weights.items()}
    size = m["head_dim"]
    inverse = 1.0 / (m["theta"] ** (torch.arange(0, size, 2, dtype=torch.float64) / size))
    angles = torch.outer(torch.arange(len(ids), dtype=torch.float64), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    cos, sin = angles.cos(), angles.sin()

    def heads(x, name):
        y = F.linear(x, w[name + ".weight"], w.get(name + ".bias"))
        return y.view(len(ids), -1, size).transpose(0, 1)

    x = F.embedding(ids, w[m["embed"] + ".weight"])
    for layer in range(m["layers"]):
        n = m["names"](layer)
        y = rms_norm(x, w[n["attn_norm"] + ".weight"], m["eps"])
        q, k, v = heads(y, n["q"]), heads(y, n["k"]), heads(y, n["v"])
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        groups = m["heads"] // m["kv_heads"]
        k, v = k.repeat_interleave(groups, dim=0), v.repeat_interleave(groups, dim=0)
        p = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(size), dim=-1)
        y = (p @ v).transpose(0, 1).reshape(len(ids), -1)
        x = x + F.linear(y, w[n["o"] + ".weight"])
        y = rms_norm(x, w[n["ffn_norm"] + ".weight"], m["eps"])
        y = F.silu(F.linear(y, w[n["gate"] + ".weight"])) * F.linear(y, w[n["up"] + ".weight"])
        x = x + F.linear(y, w[n["down"] + ".weight"])
    return F.linear(rms_norm(x, w[m["norm"] + ".weight"], m["eps"]), w[m["head"] + ".weight"])


def tensor_bytes(value):
    if value.dtype == torch.bfloat16:
        value = value.contiguous().view(torch.int16)
        return struct.pack(f"<{value.numel()}h", *value.flatten().tolist())
    return struct.pack(f"<{value.numel()}f", *value.to(torch.float32).flatten().tolist())


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, value in tensors.items():
        piece = tensor_bytes(value)
        header[name] = {"dtype": "BF16" if value.dtype == torch.bfloat16 else "F32",
                        "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def write_json(path, value):
    with open(path, "w") as out:
        out.write(json.dumps(value, indent=2) + "\n")


def write_checkpoint(folder, m, weights):
    write_json(f"{folder}/config.json",
               {"model_type": m["model_type"], "rope_theta": m["theta"], "rms_norm_eps": m["eps"]})
    if m["shards"] == 1:
        write_safetensors(f"{folder}/model.safetensors", weights)
        return
    names, n = list(weights), m["shards"]
    where = {name: f"model-{i * n // len(names) + 1:05}-of-{n:05}.safetensors"
             for i, name in enumerate(names)}
    for shard in sorted(set(where.values())):
        write_safetensors(f"{folder}/{shard}",
                          {name: weights[name] for name in names if where[name] == shard})
    write_json(f"{folder}/model.safetensors.index.json",
               {"metadata": {"total_size": sum(len(tensor_bytes(v)) for v in weights.values())},
                "weight_map": where})


def main():
    for name, m in (("llada-tiny", LLADA), ("dream-tiny", DREAM)):
        folder = os.path.join(sys.argv[1], name)
        os.makedirs(folder, exist_ok=True)
        weights = make_weights(m)
        ids = torch.randint(0, m["vocab"], (m["tokens"],))
        logits = forward(m, weights, ids)
        write_checkpoint(folder, m, weights)
        write_safetensors(f"{folder}/golden.safetensors",
                          {"ids": ids.to(torch.float32), "logits": logits.to(torch.float32)})
        print(f"{name}: {sum(v.numel() for v in weights.values())} parameters, "
              f"torch {torch.__version__}")


if __name__ == "__main__":
    main()
