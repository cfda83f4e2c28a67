"""Checkpoint folders as Hugging Face lays them out: config.json, safetensors, tokenizer; and their way back.

  export.py STATE FOLDER      of a state.pt that train.py left
"""

import glob
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file

import data
import model as models

LLADA = ("model.transformer.wte", "model.transformer.ln_f", "model.transformer.ff_out", "model.transformer.blocks.{}.",
         dict(attn_norm="attn_norm", q="q_proj", k="k_proj", v="v_proj", q_norm="q_norm", k_norm="k_norm", o="attn_out",
              ffn_norm="ff_norm", gate="ff_proj", up="up_proj", down="ff_out"))
SDAR = ("model.embed_tokens", "model.norm", "lm_head", "model.layers.{}.",
        dict(attn_norm="input_layernorm", q="self_attn.q_proj", k="self_attn.k_proj", v="self_attn.v_proj",
             q_norm="self_attn.q_norm", k_norm="self_attn.k_norm", o="self_attn.o_proj",
             ffn_norm="post_attention_layernorm", gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj"))
LLADA2 = ("model.word_embeddings", "model.norm", "lm_head", "model.layers.{}.",
          dict(SDAR[4], q_norm="attention.query_layernorm", k_norm="attention.key_layernorm", o="attention.dense",
               router="mlp.gate", s_gate="mlp.shared_experts.gate_proj", s_up="mlp.shared_experts.up_proj",
               s_down="mlp.shared_experts.down_proj", e_gate="gate_proj", e_up="up_proj", e_down="down_proj"))
NAMES = {"llada": LLADA, "sdar": SDAR, "llada2": LLADA2}


def pieces(shape):
    """For each tensor of the folder: its name, and the (key, layer, expert) of the parts that it joins."""
    embed, norm, head, at, names = NAMES[shape.family]
    yield embed + ".weight", [("embed", None, None)]
    yield norm + ".weight", [("final_norm", None, None)]
    if not shape.tied:
        yield head + ".weight", [("head", None, None)]
    for i in range(shape.layers):
        m = i - shape.dense_layers
        is_mixture = shape.experts > 0 and m >= 0
        for key, name in names.items():
            if key in (models.DENSE_KEYS if is_mixture else models.MIXTURE_KEYS):
                continue
            if key in ("q", "k", "v") and shape.family == "llada2":
                if key == "q":
                    yield at.format(i) + "attention.query_key_value.weight", [(part, i, None) for part in "qkv"]
            elif key in ("e_gate", "e_up", "e_down"):
                for e in range(shape.experts):
                    yield f"{at.format(i)}mlp.experts.{e}.{name}.weight", [(key, m, e)]
            else:
                yield at.format(i) + name + ".weight", [(key, m if key in models.MIXTURE_KEYS else i, None)]
        if is_mixture:
            yield at.format(i) + "mlp.gate.expert_bias", [("expert_bias", m, None)]


def part_of(net, key, layer, expert):
    whole = net.expert_bias if key == "expert_bias" else net.w[key]
    if layer is None:
        return whole
    return whole[layer] if expert is None else whole[layer, expert]


def config_of(name, shape):
    common = dict(model_type={"llada": "llada", "sdar": "sdar", "llada2": "llada2_moe"}[shape.family], torch_dtype="bfloat16",
                  vocab_size=shape.vocab, rope_theta=shape.theta, rms_norm_eps=shape.eps, mask_token_id=data.MASK_ID,
                  eos_token_id=data.END_ID, pad_token_id=data.PAD_ID, bos_token_id=None, name_or_path="unmask/" + name)
    if shape.family == "llada":
        return dict(architectures=["LLaDAModelLM"], **common, d_model=shape.hidden, n_layers=shape.layers,
                    n_heads=shape.heads, n_kv_heads=shape.kv_heads, mlp_hidden_size=shape.ffn, mlp_ratio=4,
                    embedding_size=shape.vocab, max_sequence_length=models.MAX_POSITIONS, weight_tying=shape.tied,
                    activation_type="silu", block_type="llama", block_group_size=1, layer_norm_type="rms",
                    layer_norm_with_affine=True, attention_layer_norm=False, qk_norm=True, rope=True,
                    rope_full_precision=True, alibi=False, include_bias=False, include_qkv_bias=False, bias_for_layer_norm=False,
                    input_emb_norm=False, multi_query_attention=None, scale_logits=False, use_cache=False)
    heads = dict(hidden_size=shape.hidden, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
                 num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, intermediate_size=shape.ffn, hidden_act="silu",
                 max_position_embeddings=models.MAX_POSITIONS, tie_word_embeddings=shape.tied, rope_scaling=None,
                 use_sliding_window=False, block_size=models.BLOCK)
    if shape.family == "sdar":
        moves = dict(delete_token_id=data.DELETE_ID, split_token_id=data.INSERT_ID) if name.endswith("-indel") else {}
        return dict(architectures=["SDARForCausalLM"], **common, **heads, attention_bias=False, **moves)
    return dict(architectures=["LLaDA2MoeModelLM"], **common, **heads, num_experts=shape.experts,
                num_experts_per_tok=shape.experts_active, moe_intermediate_size=shape.expert_ffn, num_shared_experts=1,
                first_k_dense_replace=shape.dense_layers, n_group=shape.groups, topk_group=shape.groups_active,
                norm_topk_prob=True, routed_scaling_factor=shape.routed_scale, moe_router_enable_expert_bias=True,
                score_function="sigmoid", router_dtype="fp32", partial_rotary_factor=shape.rotated / shape.head_dim,
                rotary_dim=shape.rotated, use_qk_norm=True, use_qkv_bias=False, use_bias=False, use_rmsnorm=True)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def write(net, folder, most_bytes=15_500_000):
    """bf16; in files of at most so many bytes."""
    os.makedirs(folder, exist_ok=True)
    for old in glob.glob(os.path.join(folder, "*.safetensors*")):
        os.remove(old)
    tensors = {name: torch.cat([part_of(net, *p).detach() for p in parts]).to("cpu", torch.bfloat16).contiguous()
               for name, parts in pieces(net.shape)}
    files, size = [{}], 0
    for name, tensor in tensors.items():
        n = tensor.numel() * 2
        if size + n > most_bytes:
            files.append({})
            size = 0
        files[-1][name] = tensor
        size += n + 200  # the header's entry
    where = {}
    for i, part in enumerate(files):
        file = "model.safetensors" if len(files) == 1 else f"model-{i + 1:05}-of-{len(files):05}.safetensors"
        save_file(part, os.path.join(folder, file), metadata={"format": "pt"})
        where.update({name: file for name in part})
    if len(files) > 1:
        write_json(folder, "model.safetensors.index.json",
                   dict(metadata=dict(total_size=sum(t.numel() * 2 for t in tensors.values())), weight_map=where))
    write_json(folder, "config.json", config_of(net.name, net.shape))
    write_json(folder, "generation_config.json", dict(eos_token_id=data.END_ID, pad_token_id=data.PAD_ID))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        with open(os.path.join(data.TOKENIZER, file), "rb") as shared:
            text = shared.read()
        with open(os.path.join(folder, file), "wb") as copy:
            copy.write(text)


def load(folder, device="cpu", dtype=torch.float32):
    """A Model of a folder that write() made: every tensor of it, and none that it has not."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        name = json.load(f)["name_or_path"].removeprefix("unmask/")
    net = models.Model(name, device, dtype)
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        found.update(load_file(path))
    with torch.no_grad():
        for tensor, parts in pieces(net.shape):
            value, at = found.pop(tensor), 0
            for p in parts:
                to = part_of(net, *p)
                n = to.shape[0]
                to.copy_(value[at:at + n])
                at += n
            assert at == value.shape[0], tensor
    if found:
        raise SystemExit(f"{folder}: tensors of no use here: {', '.join(sorted(found)[:5])}")
    return net


def main():
    state = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
    net = models.Model(state["model"])
    net.load_state_dict(state["net"])
    write(net, sys.argv[2])


if __name__ == "__main__":
    main()
