"""Tokens that dKV-Cache decodes where logits are shifted (arXiv 2505.15781, appendix B), written down anew from
what its released code for Dream does under shift_type = un.

Run from the repository root:  python3 experiments/study/reference/dkv_cache.py

It decodes the prompts of tests/golden/engine/dllm-cache/prompts.jsonl with the checkpoint
experiments/train/models/llada-2m in float32 on the CPU, taken as one whose row at a position says what comes
after it, under every setting below, and writes the tokens to tests/golden/engine/dkv-cache/tokens.jsonl, a line for
each setting. tests/live/test_live_released.c holds the engine to them.

With --released FOLDER, a clone of github.com/horseee/dKV-Cache, that code's own loop and caches decode the variants
"decoded" and "prefill" instead, over layers as its Dream's are (rows are kept before they are rotated), nothing is
written, and what differs from the file is printed: with its own confidences, sums in single precision whose last
bits decide between positions that the model is equally sure of, and with such as are right to the last bit, the
earlier position on a tie, as the engine's are.

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64; released code at commit 49a76fc.
"""

import argparse
import importlib
import json
import os
import sys
from types import ModuleType, SimpleNamespace

import torch

from dllm_cache import FOLDER, MODEL, OUTPUT_TOKENS, Model, rms

TOKENS = "tests/golden/engine/dkv-cache/tokens.jsonl"
EPSILON = 1e-3
# (variant, steps, steps between renewals, what positions are ranked by)
SETTINGS = [("decoded", 32, 8, "maskgit_plus"), ("decoded", 32, 4, "entropy"), ("decoded", 32, 16, "maskgit_plus"),
            ("decoded", 16, 32, "topk_margin"), ("decoded", 32, 1000, "entropy"), ("decoded", 32, 1, "maskgit_plus"),
            ("pd", 32, 4, "maskgit_plus"), ("pd", 16, 1000, "entropy"), ("prefill", 32, 1000, "maskgit_plus"),
            ("prefill", 16, 1000, "entropy")]


class Rows:
    """The keys and values of a canvas, layer by layer."""

    def __init__(self, model, n):
        self.model = model
        width = (n, model.kv_heads, model.head_dim)
        self.kept = [SimpleNamespace(k=torch.zeros(width), v=torch.zeros(width)) for _ in model.layers]

    def run(self, canvas, rows):
        """Renews these rows; the logits of each."""
        model = self.model
        x = model.embed(canvas[rows])
        for layer, kept in zip(model.layers, self.kept):
            normed = rms(x, layer.attn_norm, model.config.rms_norm_eps)
            kept.k[rows] = model.keys(layer, normed, rows)
            kept.v[rows] = (normed @ layer.v_proj.T).view(-1, model.kv_heads, model.head_dim)
            x = x + model.attention(layer, model.queries(layer, normed, rows), kept.k, kept.v.flatten(1))
            x = x + model.ffn(layer, x)
        return model.logits(x)


def rank(logits, by):
    """What positions are ranked by, to the last bit of single precision, as the engine's are."""
    probabilities = logits.double().softmax(-1)
    if by == "entropy":
        return (probabilities * logits.double().log_softmax(-1)).sum(-1).float()
    first, second = probabilities.topk(2).values.unbind(-1)
    return (first - second if by == "topk_margin" else first).float()


def runs(variant, step, interval, canvas_before, canvas, prompt, mask):
    """Which rows a step runs: those whose position was masked a step ago, as the released code has it."""
    n = len(canvas)
    renews = step % interval == 0
    if step == 0 or (variant == "decoded" and renews):
        return torch.arange(n)
    if variant == "prefill" or (variant == "pd" and renews):
        return torch.arange(prompt - 1, n)
    decides = torch.cat([canvas_before[1:] == mask, torch.tensor([step == 1])])  # the last row decides on nothing
    return decides.nonzero()[:, 0]


def decode(model, prompt, variant, steps, interval, by):
    mask, n = model.config.mask_token_id, len(prompt)
    canvas = torch.tensor(prompt + [mask] * OUTPUT_TOKENS)
    before, kept = canvas.clone(), Rows(model, len(canvas))
    times = torch.linspace(1, EPSILON, steps + 1, dtype=torch.float64)
    for step in range(steps):
        rows = runs(variant, step, interval, before, canvas, n, mask)
        logits = kept.run(canvas, rows)
        masked = (canvas == mask).nonzero()[:, 0]
        of = torch.searchsorted(rows, masked - 1)  # the row before a position decides on it
        assert torch.equal(rows[of], masked - 1)
        left = len(masked)
        wanted = int(left * (1 - float(times[step + 1] / times[step]))) if step < steps - 1 else left
        surest = rank(logits[of], by).sort(descending=True, stable=True).indices[:wanted]
        before = canvas.clone()
        canvas[masked[surest]] = logits[of[surest]].max(-1).indices
    return canvas[n:].tolist()


# ---- the released code ----


class Dream:
    """What the released loop asks of a model; its rows are kept as they are before they are rotated."""

    device = torch.device("cpu")

    def __init__(self, model):
        self.model, self.config = model, SimpleNamespace(num_hidden_layers=len(model.layers))

    def __call__(self, input_ids, past_key_values, cache_position, prv_cache_position, **_):
        model, n = self.model, len(cache_position[0]) if cache_position is not None else len(prv_cache_position[0])
        left_out = prv_cache_position[0] if prv_cache_position is not None else torch.zeros(n, dtype=torch.bool)
        order = torch.cat([(~left_out).nonzero()[:, 0], left_out.nonzero()[:, 0]])
        own = order[:int((~left_out).sum())]
        eps, x = model.config.rms_norm_eps, model.embed(input_ids[0])
        for i, layer in enumerate(model.layers):
            normed = rms(x, layer.attn_norm, eps)
            split = lambda y: y.view(1, -1, model.kv_heads, model.head_dim).transpose(1, 2)
            k, v = split(normed @ layer.k_proj.T), split(normed @ layer.v_proj.T)
            if not past_key_values.is_empty():
                k, v = (torch.cat([new, old], 2) for new, old in zip((k, v), past_key_values[i]))
            if cache_position is not None:
                past_key_values.update(k, v, i, dict(cache_position=cache_position,
                                                     prv_cache_position=prv_cache_position))
            k = model.rotated(rms(k[0].transpose(0, 1), layer.k_norm, eps), order)
            q = model.queries(layer, normed, own)
            x = x + model.attention(layer, q, k, v[0].transpose(0, 1).flatten(1))
            x = x + model.ffn(layer, x)
        return SimpleNamespace(logits=model.logits(x)[None])


def released(folder):
    """decode() by the code in that folder."""
    sys.path.insert(0, folder)
    stub = lambda name, **has: sys.modules.setdefault(name, ModuleType(name)).__dict__.update(has)
    anything = type("Anything", (), {})
    stub("transformers", __version__="4.46.3")
    stub("transformers.utils.deprecation", deprecate_kwarg=None)
    stub("transformers.cache_utils", Cache=anything)
    stub("transformers.generation")
    stub("transformers.generation.configuration_utils", GenerationConfig=anything)
    stub("transformers.utils", ModelOutput=anything, is_torchdynamo_compiling=None,
         logging=SimpleNamespace(get_logger=lambda _: None))
    stub("packaging", version=None)
    module = importlib.import_module("generation_utils.dream_generation_utils")
    loop, own = module.DreamGenerationMixin._sample, module.sample_tokens

    def exact(logits, *_, margin_confidence=False, neg_entropy=False, **__):
        by = "topk_margin" if margin_confidence else "entropy" if neg_entropy else "maskgit_plus"
        earlier_first = torch.arange(len(logits)) * 1e-12  # topk may take any on a tie
        return rank(logits, by).double() - earlier_first, logits.max(-1).indices

    def run(model, prompt, variant, steps, interval, by, is_exact):
        module.sample_tokens = exact if is_exact else own
        asked = SimpleNamespace(
            output_history=False, return_dict_in_generate=False, max_length=len(prompt) + OUTPUT_TOKENS,
            mask_token_id=model.config.mask_token_id, steps=steps, eps=EPSILON, alg=by, alg_temp=0, temperature=0,
            top_p=None, top_k=None, use_cache=True, cache_type=variant, cache_steps=interval, shift_type="un")
        tokens = loop(Dream(model), torch.tensor([prompt]), attention_mask=None, generation_config=asked,
                      generation_tokens_hook_func=lambda step, x, logits: x,
                      generation_logits_hook_func=lambda step, x, logits: logits.double() if is_exact else logits)
        return tokens[0, len(prompt):].tolist()

    return run


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
            run = released(asked.released)
            with open(TOKENS) as file:
                kept = [json.loads(line)["tokens"] for line in file]
            for setting, ours in zip(SETTINGS, kept):
                if setting[0] != "pd":
                    differ = [[i for i, prompt in enumerate(prompts)
                               if run(model, prompt, *setting, is_exact) != ours[i]] for is_exact in (False, True)]
                    print(f"{setting}: different of {len(prompts)} prompts: {differ[0]}, with confidences to the "
                          f"last bit: {differ[1]}", flush=True)
            return
        with open(TOKENS, "w") as file:
            for variant, steps, interval, by in SETTINGS:
                tokens = [decode(model, prompt, variant, steps, interval, by) for prompt in prompts]
                line = dict(variant=variant, steps=steps, interval_steps=interval, by=by, tokens=tokens)
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
