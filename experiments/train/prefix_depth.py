"""How many leading layers of a bidirectional checkpoint may take a shared prefix over (BiCache, arXiv 2606.07571,
bicache_profiler.py): keys and values of a prefix that runs by itself are compared with those of the same prefix in its
sequence, by the cosine over all heads of a layer, for each share that it has of the sequence.

Run from the repository root:  python3 experiments/train/prefix_depth.py FOLDER [--threshold 0.97] [--write]

The first layer has the same keys and values whatever follows, as they are of embeddings alone. Prefixes are beginnings of the checkpoint's own prompts in a row, what follows them is another. It prints the mean cosine
of each layer by share, and how many leading layers are above the threshold. --write puts the depth and the least share
that it is reached at into the checkpoint's config.json, from where `unmask` reads both (cache.depth, cache.share).
"""

import argparse
import json
import os
import random
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, "experiments/study/reference")
from dllm_cache import Model, rms  # noqa: E402

PROMPTS = "tests/golden/engine/dllm-cache/prompts.jsonl"  # ids of easy.jsonl, the first ten
TOKENS, SAMPLES, SEED = 320, 24, 1
SHARES = [i / 10 for i in range(1, 10)]


def keys_and_values(model, ids):
    """Of all layers, [T, heads x channels] each."""
    out, rows, x = [], torch.arange(len(ids)), model.embed(torch.tensor(ids))
    for layer in model.layers:
        normed = rms(x, layer.attn_norm, model.config.rms_norm_eps)
        k, v = model.keys(layer, normed, rows), normed @ layer.v_proj.T
        out.append((k.flatten(1), v))
        x = x + model.attention(layer, model.queries(layer, normed, rows), k, v)
        x = x + model.ffn(layer, x)
    return out


def likeness(model, ids, n):
    """Of each layer, the first n tokens alone and in their sequence."""
    alone, whole = keys_and_values(model, ids[:n]), keys_and_values(model, ids)
    return [sum(F.cosine_similarity(a, w[:n], dim=1).mean().item() for a, w in zip(*pair)) / 2
            for pair in zip(alone, whole)]


def depths(table, threshold):
    """Leading layers above the threshold, never fewer than at a smaller share."""
    least, out = 0, []
    for row in table:
        n = next((i for i, cosine in enumerate(row) if cosine <= threshold), len(row))
        least = max(least, n)
        out.append(least)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--threshold", type=float, default=0.97)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    model, rng = Model(asked.folder), random.Random(SEED)
    with open(PROMPTS) as file:
        prompts = [json.loads(line)["ids"] for line in file]
    table = []
    with torch.no_grad():
        for share in SHARES:
            rows = []
            for _ in range(asked.samples):
                n = round(share * TOKENS)
                before, after = [], []
                while len(before) < n:
                    before += rng.choice(prompts)
                while len(after) < TOKENS - n:
                    after += rng.choice(prompts)
                rows.append(likeness(model, before[:n] + after[:TOKENS - n], n))
            table.append([sum(column) / len(rows) for column in zip(*rows)])
    of = depths(table, asked.threshold)
    layers = len(model.layers)
    print("share  " + "".join(f"layer {i:<3}" for i in range(layers)) + f"depth at {asked.threshold}")
    for share, row, depth in zip(SHARES, table, of):
        print(f"{share:5.1f}  " + "".join(f"{cosine:<9.4f}" for cosine in row) + str(depth))
    deepest = min(max(of), layers - 1)
    if not asked.write:
        return
    if deepest == 0:
        sys.exit("no layer is above the threshold: nothing is written")
    path = os.path.join(asked.folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    share = next(share for share, depth in zip(SHARES, of) if depth >= deepest)
    config["prefix_depth"] = dict(layers=deepest, share=share, threshold=asked.threshold)
    with open(path, "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    print(f"{path}: {deepest} layers from a share of {share} on")


if __name__ == "__main__":
    main()
