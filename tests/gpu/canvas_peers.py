"""PyTorch at the shapes of tests/gpu/bench_canvas.c: attention by scaled_dot_product_attention with a
mask of the window, and what the sampler reads off logits, op by op as released code does. Microseconds.

    python3 canvas_peers.py
"""
import torch

CANVAS, VOCAB, HEADS = 256, 262144, 16


def time_us(run):
    run()
    best = float("inf")
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(5):
            run()
        end.record()
        end.synchronize()
        best = min(best, 1e3 * begin.elapsed_time(end) / 5)
    return best


def attention(b, context, d, kv_heads, window):
    rows = context + CANVAS
    q = torch.randn(b, HEADS, CANVAS, d, dtype=torch.bfloat16, device="cuda")
    k, v = (torch.randn(b, kv_heads, rows, d, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    mask = None
    if window:
        i = torch.arange(context, rows, device="cuda")[:, None]
        mask = (torch.arange(rows, device="cuda")[None, :] > i - window)
    run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    print(f"{'window' if window else 'full'} {b} x 256 after {context}, heads {HEADS}/{kv_heads} of {d}: "
          f"{time_us(run):.1f} us", flush=True)


def logits(b):
    x = torch.randn(b * CANVAS, VOCAB, dtype=torch.bfloat16, device="cuda") * 4
    print(f"softcap, {b} canvases: {time_us(lambda: 30 * torch.tanh(x / 30)):.1f} us", flush=True)
    print(f"softmax at a temperature, {b} canvases: {time_us(lambda: torch.softmax(x / 0.6, -1)):.1f} us", flush=True)

    def sample():
        scaled = x.float() / 0.6
        noisy = scaled - torch.log(-torch.log(torch.rand_like(scaled)))
        logp = torch.log_softmax(scaled, -1)
        return noisy.argmax(-1), scaled.argmax(-1), -(logp.exp() * logp).sum(-1)

    print(f"draw, best and entropy, {b} canvases: {time_us(sample):.1f} us", flush=True)


with torch.no_grad():
    for b in (1, 8):
        for context in (256, 1024, 4096):
            attention(b, context, 256, 8, 1024)
            attention(b, context, 256, 8, 0)
            attention(b, context, 512, 2, 0)
        logits(b)
