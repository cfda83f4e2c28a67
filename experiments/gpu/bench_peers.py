"""Denoising steps as PyTorch runs them: the measured side of Mosaic's figures 5, 11 and 15.

    python3 experiments/gpu/bench_peers.py OUT.csv [CONTEXT...]

One row a timed step: model, mode, context, round, ms. The models are LLaDA-8B (the class that
record_allocations.py recorded, with all its layers) and Dream-7B (grouped queries, biases, logits
shifted by a concatenation, candidates picked out of the masked half). Logits are those of the whole
canvas, with a softmax in bfloat16 as generate.py has it now. The modes:

  eager      operator by operator, memory segments cached (Mosaic-Torch)
  uncached   the same with PYTORCH_NO_CUDA_MEMORY_CACHING=1 (figure 5; LLaDA-8B alone)
  compiled   each layer compiled by torch.compile, sampler eager (Mosaic-Compile)

Each model and mode is a process of its own; eager and uncached take turns for ROUNDS rounds. A step
is timed after a warm one of its length; long ones fewer times than short ones.
"""

import csv
import os
import subprocess
import sys

ROUNDS = 2
HERE = os.path.dirname(os.path.abspath(__file__))
CONTEXTS = [1024, 2048, 4096, 8192, 16384, 32768]
DREAM = dict(HIDDEN=3584, HEADS=28, FFN=18944, VOCAB=152064, LAYERS=28, MASK=151666)
KV_HEADS = 4


def make_model(torch, reference, name):
    if name == "llada-8b":
        reference.LAYERS = 32
        return reference.Llada(torch)

    for key, value in DREAM.items():
        setattr(reference, key, value)

    class Dream(reference.Llada):
        def __init__(self, torch):
            super().__init__(torch)
            size = KV_HEADS * reference.HEAD_DIM
            for w in self.layers:
                w["k"], w["v"] = w["k"][:size].clone(), w["v"][:size].clone()
                for name in "qkv":
                    w[name + "_bias"] = torch.zeros(w[name].shape[0], dtype=torch.bfloat16,
                                                    device="cuda")

        def layer(self, x, w, cos, sin):
            F = torch.nn.functional
            h = self.rms_norm(x, w["attn_norm"])
            q, k, v = (F.linear(h, w[n], w[n + "_bias"]).view(1, h.shape[1], -1, reference.HEAD_DIM)
                       .transpose(1, 2) for n in "qkv")
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            a = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            x = x + F.linear(a.transpose(1, 2).reshape(1, -1, reference.HIDDEN), w["o"])
            h = self.rms_norm(x, w["ffn_norm"])
            return x + F.linear(F.silu(F.linear(h, w["gate"])) * F.linear(h, w["up"]), w["down"])

    return Dream(torch)


def step(torch, reference, model, name, layer, canvas):
    F = torch.nn.functional
    x = F.embedding(canvas, model.embed)
    cos, sin = model.rotary(canvas.shape[1])
    for weights in model.layers:
        x = layer(x, weights, cos, sin)
    logits = F.linear(model.rms_norm(x, model.norm), model.head)
    masked = canvas == reference.MASK
    if name == "dream-7b":
        logits = torch.cat([logits[:, :1], logits[:, :-1]], dim=1)
        confidence, tokens = F.softmax(logits[masked], dim=-1).max(dim=-1)
        chosen = torch.topk(confidence, k=1).indices
        return tokens[chosen]
    tokens = torch.argmax(logits, dim=-1)
    probabilities = F.softmax(logits, dim=-1)
    confidence = torch.gather(probabilities, -1, tokens.unsqueeze(-1)).squeeze(-1)
    confidence = torch.where(masked, confidence, float("-inf"))
    tokens = torch.where(masked, tokens, canvas)
    return tokens[0, torch.topk(confidence[0], k=1).indices]


def child(name, mode, contexts):
    sys.path.insert(0, os.path.join(HERE, "..", "reference"))
    import torch
    import record_allocations as reference
    torch.manual_seed(1)
    with torch.no_grad():
        model = make_model(torch, reference, name)
        layer = torch.compile(model.layer, dynamic=True) if mode == "compiled" else model.layer
        for length in contexts:
            canvas = torch.full((1, length), 11, dtype=torch.long, device="cuda")
            canvas[0, length // 2:] = reference.MASK
            for i in range(4 if length < 16384 else 3):
                before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda.synchronize()
                before.record()
                step(torch, reference, model, name, layer, canvas)
                after.record()
                torch.cuda.synchronize()
                if i > 0:
                    print(length, "%.4f" % before.elapsed_time(after), flush=True)


def run(name, mode, contexts):
    environment = dict(os.environ)
    environment.pop("PYTORCH_NO_CUDA_MEMORY_CACHING", None)
    if mode == "uncached":
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    done = subprocess.run([sys.executable, __file__, "--child", name, mode, *map(str, contexts)],
                          env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        print("%s, %s: %s" % (name, mode, done.stderr.strip().splitlines()[-1:]), file=sys.stderr)
    return [(int(line.split()[0]), float(line.split()[1])) for line in done.stdout.splitlines()]


def main(words):
    if words[:1] == ["--child"]:
        return child(words[1], words[2], [int(w) for w in words[3:]])
    contexts = [int(w) for w in words[1:]] or CONTEXTS
    turns = [("llada-8b", mode, turn) for turn in range(ROUNDS) for mode in ("eager", "uncached")]
    turns += [("llada-8b", "compiled", 0), ("dream-7b", "eager", 0), ("dream-7b", "compiled", 0)]
    with open(words[0], "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["model", "mode", "context", "round", "ms"])
        for name, mode, turn in turns:
            rows = run(name, mode, contexts)
            out.writerows([name, mode, length, turn, "%.4f" % ms] for length, ms in rows)
            file.flush()
            print(name, mode, *("%d: %.1f" % row for row in rows), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
