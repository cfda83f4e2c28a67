"""Holds several_blocks.py to the loop that D2F released for Dream, in which logits are shifted (arXiv 2508.09192).

Run from the repository root:  python3 experiments/study/reference/d2f_released.py FOLDER

FOLDER is a clone of github.com/zhijie-group/Discrete-Diffusion-Forcing, whose own generation loop (D2F-eval/eval_dream.py) is run over the
checkpoints experiments/train/models/sdar-2m and sdar-2m-all in float32 on the CPU, and what differs is printed. Its blocks begin where the
prompt ends, and the prompt sees all of itself; here both lie at multiples of a block. So the prompts are cut to one block, for which
that is the same. It runs a prompt with the first block, which is a prefill here and counted in neither, and does not store the last block
(cache.commit_last = off): one pass fewer a prompt.

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64; released code at commit 771f745.
"""

import ast
import json
import sys
from types import SimpleNamespace

import torch
import torch.distributions
import torch.nn.functional as F

from dllm_cache import OUTPUT_TOKENS
from joint_threshold import EDITED, PROMPTS, Model
from several_blocks import decode

SETTINGS = [(0.9, 0.95, 0.1, 32), (0.9, 0.95, 0.9, 32), (0.3, 0.95, 0.1, 16), (0.9, 0.95, 0.1, 8), (0.05, 0.25, 0.125, 8),
            (0.95, 0.95, 0.1, 4)]  # skip_threshold, decoded_token_threshold, block_add_threshold, block_size
LOOP = ("_generate_block_single", "_update_block_completion_states", "_shift_logits", "_count_non_eos_tokens_before_truncation")


def loop(folder):
    """The released class with what its loop needs, without the packages that the rest of the file imports."""
    with open(folder + "/D2F-eval/eval_dream.py") as file:
        parts = ast.parse(file.read()).body
    names = {"torch": torch, "F": F, "dists": torch.distributions}
    kept = [part for part in parts if isinstance(part, ast.FunctionDef) and "eval" not in part.name]
    of, = (part for part in parts if isinstance(part, ast.ClassDef) and part.name == "DreamLoRA")
    of.bases, of.decorator_list = [], []
    of.body = [part for part in of.body if getattr(part, "name", "") in LOOP]
    exec(compile(ast.Module(body=kept + [of], type_ignores=[]), folder, "exec"), names)
    return names["DreamLoRA"]


class Kept(list):
    """Keys and values by layer."""

    def get_seq_length(self):
        return len(self[0][0])


class Network:
    """What the loop asks of a model."""

    def __init__(self, model):
        self.model, self.passes = model, 0

    def eval(self):
        return self

    def __call__(self, ids, attention_mask, past_key_values, use_cache, update_kvcache):
        m, c, ids = self.model, self.model.config, ids[0]
        held = past_key_values.get_seq_length() if past_key_values is not None else 0
        at, sees, now = torch.arange(held, held + len(ids)), attention_mask[0, 0] == 0, Kept()
        self.passes += 1
        x = m.weights["model.embed_tokens.weight"][ids]
        for i in range(c.num_hidden_layers):
            name = f"model.layers.{i}."
            normed = m.rms(x, name + "input_layernorm")
            q, k, v = (m.times(normed, f"{name}self_attn.{p}_proj").view(len(ids), -1, c.head_dim) for p in "qkv")
            q, k = (m.rotated(m.rms(t, f"{name}self_attn.{n}_norm"), at) for t, n in ((q, "q"), (k, "k")))
            if held:
                k, v = (torch.cat(pair) for pair in zip(past_key_values[i], (k, v)))
            now.append((k[:held + update_kvcache], v[:held + update_kvcache]))
            k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
            scores = torch.einsum("qhd,khd->hqk", q, k) / c.head_dim ** 0.5
            weights = scores.masked_fill(~sees, float("-inf")).softmax(-1)
            x = x + m.times(torch.einsum("hqk,khd->qhd", weights, v).flatten(1), name + "self_attn.o_proj")
            normed = m.rms(x, name + "post_attention_layernorm")
            gated = F.silu(m.times(normed, name + "mlp.gate_proj")) * m.times(normed, name + "mlp.up_proj")
            x = x + m.times(gated, name + "mlp.down_proj")
        return SimpleNamespace(logits=m.times(m.rms(x, "model.norm"), "model.embed_tokens")[None], past_key_values=now)


def decode_released(make, model, prompt, threshold, complete, add, block):
    tokens = []
    tokenizer = SimpleNamespace(eos_token_id=None, eos_token="\0", decode=lambda ids: tokens.extend(ids) or "")
    of = make()
    of.__dict__.update(
        model=Network(model), tokenizer=tokenizer, mask_token_id=model.config.mask_token_id, block_size=block,
        block_add_threshold=add, skip_threshold=threshold, decoded_token_threshold=complete, max_length=512, device="cpu",
        target_dtype=torch.float32, max_new_tokens=OUTPUT_TOKENS, temperature=0, top_p=None, top_k=None, sampling_strategy="default")
    of._generate_block_single(torch.tensor([prompt]))
    return tokens, of.model.passes


if __name__ == "__main__":
    make = loop(sys.argv[1])
    with open(PROMPTS) as file:
        prompts = [json.loads(line)["ids"] for line in file]
    for folder in ("experiments/train/models/sdar-2m", EDITED):
        model = Model(folder)
        for threshold, complete, add, block in SETTINGS:
            same = fewer = 0
            for prompt in (prompt[:block] for prompt in prompts):
                tokens, passes = decode_released(make, model, prompt, threshold, complete, add, block)
                ours = decode(model, prompt, threshold, complete, add, 16, block, shifted="on")
                same, fewer = same + (tokens == ours[0]), fewer + ours[1] - passes
            print(f"{folder} {threshold} {complete} {add} {block}: {same} of {len(prompts)} prompts have the same tokens, "
                  f"the released loop takes {fewer} passes fewer", flush=True)
