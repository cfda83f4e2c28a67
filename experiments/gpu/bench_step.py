"""Times LLaDA-8B's step as PyTorch runs it, in bf16 and in fp8 by torch._scaled_mm: the peers of `fp8.sh BUILD OUT steps`.

    python3 bench_step.py OUT.csv [forms=bf16,rows,squares,floor] [layers=32] [BATCHxTOKENS...]

Random weights, every position decoded (argmax and softmax confidence), fused projections, scaled_dot_product_attention with
its own choice of kernel, each layer compiled by torch.compile, the whole step captured in a CUDA graph. In fp8 the inputs of
a product are quantised by the compiled layer (by row, or 128 numbers of it), next to weights with scales of rows or of
squares of 128 x 128; head, norms and residual stream are bf16. Medians of 12 steps, synchronised. With layers=1 nothing is
timed: it fills the cache of the compiler. Forms that begin with `floor` are what a step in fp8 has at least: its products
with scales of rows in torch._scaled_mm's fastest mode (floor-products), its attention, its head's product, and all of
them (floor), by graphs of nothing else.
"""
import csv
import statistics
import sys
import time

import torch
import torch.nn.functional as F

HIDDEN, HEADS, SIZE, FFN, VOCAB = 4096, 32, 128, 12288, 126464
LARGEST, ROUNDS = 448.0, 12
options = dict(argument.split("=") for argument in sys.argv[2:] if "=" in argument)
shapes = [argument for argument in sys.argv[2:] if "=" not in argument] or ["1x32", "1x512", "1x2048", "8x512"]
SHAPES = [tuple(map(int, shape.split("x"))) for shape in shapes]
FORMS = options.get("forms", "bf16,rows,squares").split(",")
LAYERS = int(options.get("layers", 32))
torch._dynamo.config.cache_size_limit = 64
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def matrix(n, k):
    return torch.empty(n, k, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1).mul_((3 / k) ** 0.5)


def weights(n, k, form):
    """A matrix in the form: itself and a scale of nothing in bf16, else codes and scales."""
    wide = matrix(n, k)
    if form == "bf16":
        return wide, torch.ones((), device="cuda")
    across = k if form == "rows" else 128
    down = 1 if form == "rows" else 128
    squares = wide.float().view(n // down, down, k // across, across)
    scale = squares.abs().amax((1, 3), keepdim=True) / LARGEST
    return (squares / scale).view(n, k).to(torch.float8_e4m3fn), scale.view(n // down, k // across).contiguous()


@torch.library.custom_op("peer::scaled", mutates_args=())
def scaled(x: torch.Tensor, w: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor) -> torch.Tensor:
    """x [T, C] by w [N, C]; x_scale [C / group, T], w_scale as `weights` gives it."""
    return torch._scaled_mm(x, w.t(), scale_a=x_scale.t(), scale_b=w_scale.t(), out_dtype=torch.bfloat16)


@scaled.register_fake
def _(x, w, x_scale, w_scale):
    return x.new_empty(x.shape[0], w.shape[0], dtype=torch.bfloat16)


def product(x, w, form):
    """x [T, C] by the matrix w."""
    if form == "bf16":
        return F.linear(x, w[0])
    t, c = x.shape
    group = c if form == "rows" else 128
    parts = x.float().view(t, c // group, group)
    scale = parts.abs().amax(-1, keepdim=True).clamp_min(1e-12) / LARGEST
    codes = (parts / scale).view(t, c).to(torch.float8_e4m3fn)
    return scaled(codes, w[0], scale.view(t, c // group).t().contiguous(), w[1])


def rms_norm(x, weight):
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def layer(x, norm1, norm2, qkv, out, gate_up, down, cos, sin, form):
    b, t, c = x.shape
    x = x.view(b * t, c)
    q, k, v = product(rms_norm(x, norm1), qkv, form).view(b, t, 3, HEADS, SIZE).unbind(2)
    q, k, v = rotate(q, cos, sin).transpose(1, 2), rotate(k, cos, sin).transpose(1, 2), v.transpose(1, 2)
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b * t, c)
    x = x + product(y, out, form)
    gate, up = product(rms_norm(x, norm2), gate_up, form).chunk(2, -1)
    return (x + product(F.silu(gate) * up, down, form)).view(b, t, c)


def finish(x, norm, weight):
    logits = F.linear(rms_norm(x, norm), weight)
    confidence, token = torch.softmax(logits.float(), -1).max(-1)
    return token, confidence


compiled_layer = torch.compile(layer, dynamic=False)
compiled_finish = torch.compile(finish, dynamic=False)


def timed(run):
    times = []
    for _ in range(ROUNDS + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[3:])


def measure(form, ends):
    norm = torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16)
    layers = [dict(norm1=norm.clone(), norm2=norm.clone(), qkv=weights(3 * HIDDEN, HIDDEN, form),
                   out=weights(HIDDEN, HIDDEN, form), gate_up=weights(2 * FFN, HIDDEN, form),
                   down=weights(HIDDEN, FFN, form)) for _ in range(LAYERS)]
    embedding, head = ends

    def step(ids, cos, sin):
        x = F.embedding(ids, embedding)
        for w in layers:
            x = compiled_layer(x, **w, cos=cos, sin=sin, form=form)
        return compiled_finish(x, norm, head)

    for batch, tokens in SHAPES:
        angle = torch.outer(torch.arange(tokens, device="cuda").float(),
                            500000.0 ** (-torch.arange(0, SIZE, 2, device="cuda").float() / SIZE))
        cos, sin = angle.cos()[:, None, :], angle.sin()[:, None, :]
        ids = torch.randint(0, VOCAB, (batch, tokens), device="cuda")
        for _ in range(2):
            step(ids, cos, sin)
        if LAYERS == 1:
            continue
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(ids, cos, sin)
        yield batch, tokens, form, f"{timed(graph.replay):.4f}"
        del graph
        torch.cuda.empty_cache()


def measure_floor(form, ends):
    parts = form.split("-")[1:] or ["products", "attention", "head"]
    shapes = [(3 * HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (2 * FFN, HIDDEN), (HIDDEN, FFN)]
    layers = [[weights(n, k, "rows") for n, k in shapes] for _ in range(LAYERS if "products" in parts else 0)]
    for batch, tokens in SHAPES:
        t = batch * tokens
        inputs = {k: matrix(t, k).to(torch.float8_e4m3fn) for k in (HIDDEN, FFN)}
        scale = torch.ones(t, 1, device="cuda")
        q, k, v = (matrix(t, HIDDEN).view(batch, tokens, HEADS, SIZE).transpose(1, 2) for _ in range(3))
        x = matrix(t, HIDDEN)

        def step():
            for layer in range(LAYERS):
                if "attention" in parts:
                    F.scaled_dot_product_attention(q, k, v)
                for (n, c), (w, w_scale) in zip(shapes, layers[layer] if layers else ()):
                    torch._scaled_mm(inputs[c], w.t(), scale_a=scale, scale_b=w_scale.t(), out_dtype=torch.bfloat16,
                                     use_fast_accum=True)
            if "head" in parts:
                F.linear(x, ends[1])
        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        yield batch, tokens, form, f"{timed(graph.replay):.4f}"
        del graph
        torch.cuda.empty_cache()


with torch.no_grad(), open(sys.argv[1], "w", newline="") as out:
    writer = csv.writer(out)
    writer.writerow(["batch", "tokens", "form", "torch_compile_and_graph_ms"])
    both = matrix(VOCAB, HIDDEN), matrix(VOCAB, HIDDEN)
    for name in FORMS:
        try:
            for row in (measure_floor if name.startswith("floor") else measure)(name, both):
                print(*row, flush=True)
                writer.writerow(row)
        except Exception as error:
            print(f"{name}: left out: {str(error).splitlines()[0][:200]}", flush=True)
        torch.cuda.empty_cache()
