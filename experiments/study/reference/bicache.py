"""Tokens that BiCache decodes (arXiv 2606.07571; OSSS-KU/BiCache, bicache_engines.py), written down anew from what its
released code does: a prefix that prompts share is run once by itself; the first layers of a request take its keys and
values over, and the hidden states after them; every few steps the other layers renew the prefix's in its canvas, and in
the steps between only what follows the prefix runs.

Run from the repository root:  python3 experiments/study/reference/bicache.py

It decodes ten prompts that begin alike with the checkpoint experiments/train/models/llada-2m in float32 on the CPU, under
every setting below, and writes prompts.jsonl and a line for each setting to tests/golden/engine/bicache/.
tests/live/test_live_bicache.c holds the engine to them. A prompt's prefix is what it has in common with one before it.
The released code looks the number of layers up by the prefix's share of the canvas; here there is one number, and
prefixes of less than a share are renewed in all layers.

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64.
"""

import json
import os

import torch

from dllm_cache import MODEL, OUTPUT_TOKENS, Model, rms

FOLDER = "tests/golden/engine/bicache"
OF = "tests/golden/engine/dllm-cache/prompts.jsonl"
HEAD_TOKENS = 16  # fewer tokens in common are no prefix
SETTINGS = [
    dict(depth=2, interval=16, sure=0.9),
    dict(depth=2, interval=1, sure=0.9),
    dict(depth=1, interval=4, sure=0.9),
    dict(depth=3, interval=32, sure=0.9),
    dict(depth=2, interval=3, sure=0.9, share=0.45),
    dict(depth=3, interval=5, sure=0.99, block=8),
]


class Request:
    def __init__(self, model, prefix, canvas, depth, interval, share):
        self.model, self.prefix, self.interval, self.step = model, prefix, interval, 0
        self.takes = prefix > 0 and prefix >= share * len(canvas)
        self.depth = depth if self.takes else 0
        self.kept = [None] * len(model.layers)
        self.after = None
        if self.takes:
            self.after = self.run(model.embed(canvas[:prefix]), torch.arange(prefix), 0, depth, alone=True)

    def run(self, x, rows, first, end, alone=False):
        """Layers [first, end) over rows; keys and values of the prefix are kept where it runs, and taken where not."""
        model, prefix = self.model, self.prefix
        for i in range(first, end):
            layer = model.layers[i]
            normed = rms(x, layer.attn_norm, model.config.rms_norm_eps)
            k, v = model.keys(layer, normed, rows), normed @ layer.v_proj.T
            if prefix > 0 and rows[0] == 0:
                self.kept[i] = (k[:prefix], v[:prefix])
            elif prefix > 0:
                k, v = (torch.cat(pair) for pair in zip(self.kept[i], (k, v)))
            x = x + model.attention(layer, model.queries(layer, normed, rows), k, v)
            x = x + model.ffn(layer, x)
        return x

    def forward(self, canvas):
        renews = self.prefix == 0 or self.step % self.interval == 0
        self.step += 1
        layers, rows = len(self.model.layers), torch.arange(len(canvas))
        if renews and not self.takes:
            return self.model.logits(self.run(self.model.embed(canvas), rows, 0, layers))
        behind = rows[self.prefix:]
        x = self.run(self.model.embed(canvas[behind]), behind, 0, self.depth if renews else layers)
        if renews:
            x = self.run(torch.cat([self.after, x]), rows, self.depth, layers)
        logits = self.model.logits(x)
        return logits if renews else torch.cat([torch.zeros(self.prefix, logits.shape[1]), logits])


def decode(model, prompt, prefix, depth, interval, sure, share=0.0, block=32):
    mask = model.config.mask_token_id
    x = torch.tensor(prompt + [mask] * OUTPUT_TOKENS)
    request = Request(model, prefix, x, depth, interval, share)
    first = len(prompt)
    while first < len(x):
        end = min(first + block, len(x))
        masked = [i for i in range(first, end) if x[i] == mask]
        if not masked:
            first = end
            continue
        p, v = request.forward(x)[first:end].softmax(-1).max(-1)
        for i in [i for i in masked if p[i - first] >= sure] or [max(masked, key=lambda i: (p[i - first].item(), -i))]:
            x[i] = v[i - first]
    return x[len(prompt):].tolist(), request.step


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n if n >= HEAD_TOKENS else 0


def main():
    model = Model(MODEL)
    with open(OF) as file:
        ids = [json.loads(line)["ids"] for line in file]
    prompts = [(ids[0] + ids[1])[:40 + 20 * (i % 3)] + prompt[:60] for i, prompt in enumerate(ids)]
    prefixes = [max([common(prompt, other) for other in prompts[:i]], default=0) for i, prompt in enumerate(prompts)]
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, "prompts.jsonl"), "w") as file:
        for i, prompt in enumerate(prompts):
            file.write(json.dumps(dict(id=f"alike-{i}", ids=prompt)) + "\n")
    torch.set_num_threads(1)
    with torch.no_grad(), open(os.path.join(FOLDER, "tokens.jsonl"), "w") as file:
        for setting in SETTINGS:
            tokens, passes = zip(*(decode(model, *of, **setting) for of in zip(prompts, prefixes)))
            file.write(json.dumps({**setting, "prefixes": prefixes, "passes": passes, "tokens": tokens}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
