"""Times one LLaDA-8B-shaped step as PyTorch runs it: the peer of `unmask explain --backend cuda`.

    python3 bench_step.py OUT.csv [BATCHxTOKENS...]

Random bf16 weights, every position decoded (argmax and softmax confidence), fused projections,
scaled_dot_product_attention with its own choice of kernel, each decoder layer compiled by
torch.compile (regional compilation: one compilation serves all layers). Every shape is timed twice:
as torch.compile launches it, and with the whole step captured in a CUDA graph on top, which no
released implementation does. Medians of ROUNDS steps, synchronised.
"""
import csv
import statistics
import sys
import time

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, SIZE, FFN, VOCAB = 32, 4096, 32, 128, 12288, 126464
SHAPES = [tuple(map(int, shape.split("x")))
          for shape in sys.argv[2:] or ("1x32", "1x512", "1x2048", "8x512", "1x8192")]
ROUNDS = 12
torch.manual_seed(int.from_bytes(open("/dev/urandom", "rb").read(4), "little"))
torch._dynamo.config.cache_size_limit = 64
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def matrix(n, k):
    return torch.empty(n, k, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1).mul_((3 / k) ** 0.5)


layers = [dict(norm1=torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16),
               norm2=torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16),
               qkv=matrix(3 * HIDDEN, HIDDEN), out=matrix(HIDDEN, HIDDEN),
               gate_up=matrix(2 * FFN, HIDDEN), down=matrix(HIDDEN, FFN)) for _ in range(LAYERS)]
embedding, head = matrix(VOCAB, HIDDEN), matrix(VOCAB, HIDDEN)
final_norm = torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16)


def rms_norm(x, weight):
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def layer(x, norm1, norm2, qkv, out, gate_up, down, cos, sin):
    b, t, c = x.shape
    q, k, v = F.linear(rms_norm(x, norm1), qkv).view(b, t, 3, HEADS, SIZE).unbind(2)
    q, k, v = rotate(q, cos, sin).transpose(1, 2), rotate(k, cos, sin).transpose(1, 2), v.transpose(1, 2)
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
    x = x + F.linear(y, out)
    gate, up = F.linear(rms_norm(x, norm2), gate_up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, down)


def finish(x, norm, weight):
    logits = F.linear(rms_norm(x, norm), weight)
    confidence, token = torch.softmax(logits.float(), -1).max(-1)
    return token, confidence


compiled_layer = torch.compile(layer, dynamic=False)
compiled_finish = torch.compile(finish, dynamic=False)


def step(ids, cos, sin):
    x = F.embedding(ids, embedding)
    for w in layers:
        x = compiled_layer(x, **w, cos=cos, sin=sin)
    return compiled_finish(x, final_norm, head)


def timed(run):
    times = []
    for i in range(ROUNDS + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[3:])


rows = []
for batch, tokens in SHAPES:
    with torch.no_grad():
        angle = torch.outer(torch.arange(tokens, device="cuda").float(),
                            500000.0 ** (-torch.arange(0, SIZE, 2, device="cuda").float() / SIZE))
        cos, sin = angle.cos()[:, None, :], angle.sin()[:, None, :]
        ids = torch.randint(0, VOCAB, (batch, tokens), device="cuda")
        plain = timed(lambda: step(ids, cos, sin))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(ids, cos, sin)
        captured = timed(graph.replay)
        del graph
        torch.cuda.empty_cache()
    rows.append((batch, tokens, f"{plain:.4f}", f"{captured:.4f}"))
    print(*rows[-1], flush=True)
with open(sys.argv[1], "w", newline="") as out:
    writer = csv.writer(out)
    writer.writerow(["batch", "tokens", "torch_compile_ms", "torch_compile_and_graph_ms"])
    writer.writerows(rows)
