"""Tokens that entropy-bounded renoising decodes, written down anew from its specification (DiffusionGemma;
vllm-project/vllm diffusion_gemma.py, _compiled_sample_step; SGLang's Gemma4Renoise).

Run from the repository root:  python3 experiments/study/reference/renoise.py

It decodes the prompts of tests/golden/engine/dllm-cache/prompts.jsonl with the checkpoint
experiments/train/models/sdar-2m in float32 on the CPU, under every setting below, and writes a line for each
setting to tests/golden/engine/renoise/tokens.jsonl: tokens and passes of each prompt, passes that store a canvas
left aside. tests/live/test_live_renoise.c holds the engine to them. That model was trained to fill masks, and is
none of random tokens: what it says here is of no use but to compare with. sdar-2m-all was trained with both.

A canvas begins as random tokens. In each pass a token is drawn for every position at a temperature that falls
from t_max to t_min, those of least entropy are accepted while the entropies before them add up to no more than a
bound, and all others become new random tokens. It is over when the most likely tokens are those of the pass
before and the mean entropy is below a threshold, or after max_steps; the most likely tokens are the output.
The prompt and finished canvases see no further than themselves; a canvas sees all that is before it, and all of
itself. There is no self-conditioning. Draws are the engine's own (sim/base/rng.h, kernels/rules/keyed.h).

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64.
"""

import math

import numpy
import torch

from dllm_cache import OUTPUT_TOKENS
from joint_threshold import write_tokens

TOKENS = "tests/golden/engine/renoise/tokens.jsonl"
TRAINED = "experiments/train/models/sdar-2m-all"
SETTINGS = [
    dict(block=32, entropy_bound=0.1, max_steps=8),  # the published numbers, but for canvas and passes
    dict(block=32, entropy_bound=30.0, confidence_threshold=1.0, max_steps=16),
    dict(block=64, entropy_bound=8.0, confidence_threshold=0.9, t_min=0.05, t_max=0.3, max_steps=20),
    dict(block=16, entropy_bound=2.0, confidence_threshold=0.5, t_min=0.02, t_max=0.02, max_steps=10),
    dict(block=48, entropy_bound=1000.0, confidence_threshold=0.0, max_steps=7),
    dict(model=TRAINED, block=32, entropy_bound=0.1),  # the published numbers, but for the canvas
    dict(model=TRAINED, block=32, entropy_bound=2.0),
]
SEED, WORD, GOLDEN = 1, 2**64 - 1, 0x9E3779B97F4A7C15
FOR_TOKENS, FOR_NOISE, FOR_FIRST = range(3)


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
    return z ^ z >> 31


def bits(key, index):
    return mix(key ^ (index + GOLDEN & WORD))


def key_of(a, b, c):
    return bits(bits(mix(a + GOLDEN & WORD), b), c)


def random_token(key, position, vocab):
    return int(((bits(key, position) >> 11) + 0.5) * 2.0**-53 * vocab)


def noise(key, vocab):
    """Gumbel noise of every token."""
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(key) ^ numpy.arange(vocab, dtype=numpy.uint64) + numpy.uint64(GOLDEN)
        z = (z ^ z >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ z >> numpy.uint64(31)
    u = (2.0 * (z >> numpy.uint64(41)).astype(float) + 1) * 2.0**-24
    return -numpy.log(-numpy.log(u))


def sees(n, first):
    """Of n positions, of which a canvas begins at `first` and is the rest."""
    at = torch.arange(n)
    return (at[:, None] >= at[None, :]) | (at[:, None] >= first)


def decode(model, prompt, number, block, entropy_bound, confidence_threshold=0.005, t_min=0.4, t_max=0.8,
           max_steps=48):
    vocab = model.config.vocab_size
    first_key = key_of(key_of(SEED, number, 0), 0, FOR_FIRST)
    end = len(prompt) + OUTPUT_TOKENS
    x = prompt + [random_token(first_key, i, vocab) for i in range(len(prompt), end)]
    passes = 0
    for first in range(len(prompt), end, block):
        last = min(first + block, end)
        before = None
        for step in range(max_steps):
            rows = model.logits(torch.tensor(x[:last]), last - first, sees(last, first)).double().numpy()
            scaled = rows / (t_min + (t_max - t_min) * (max_steps - step) / max_steps)
            passes += 1
            top = scaled.argmax(-1).tolist()
            p = numpy.exp(scaled - scaled.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            entropy = -(p * numpy.log(numpy.maximum(p, 1e-300))).sum(-1)
            if (top == before and entropy.mean() < confidence_threshold) or step + 1 == max_steps:
                break
            before = top
            pass_key = key_of(SEED, number, first)
            noises, randoms = key_of(pass_key, step, FOR_NOISE), key_of(pass_key, step, FOR_TOKENS)
            so_far = 0.0
            for i in sorted(range(last - first), key=lambda i: (entropy[i], i)):
                accepted = so_far <= entropy_bound
                so_far += entropy[i]
                drawn = int((scaled[i] + noise(bits(noises, first + i), vocab)).argmax())
                x[first + i] = drawn if accepted else random_token(randoms, first + i, vocab)
        x[first:last] = top
    return x[len(prompt):], passes


if __name__ == "__main__":
    write_tokens(TOKENS, SETTINGS, ("passes",), lambda model, prompt, number, setting: decode(model, prompt, number, **setting))
