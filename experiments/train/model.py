"""Three families of masked-diffusion language models, small: llada (bidirectional, with norms of query and key heads, which
LLaDA-8B has not), sdar (block-causal, Qwen3's layers) and llada2 (block-causal, experts, LLaDA2.0's layers).

Weights are stacked over layers, [layers, out, in]; export.py takes them apart.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

BLOCK = 32
MAX_POSITIONS = 2048


@dataclass(frozen=True)
class Shape:
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int  # of a dense layer
    theta: float
    eps: float
    vocab: int = 2048
    tied: bool = False
    rotary_dim: int = 0  # 0: all channels of a head
    dense_layers: int = 0  # experts: the first so many layers have none
    experts: int = 0
    experts_active: int = 0
    expert_ffn: int = 0  # of a routed expert and of the shared one
    groups: int = 1
    groups_active: int = 1
    routed_scale: float = 1.0
    block_experts: int = 0  # that the tokens of a block may choose among; 0: all

    @property
    def rotated(self):
        return self.rotary_dim or self.head_dim

    @property
    def is_block_causal(self):
        return self.family != "llada"

    @property
    def mixture_layers(self):
        return self.layers - self.dense_layers if self.experts else 0


LLADA = dict(family="llada", theta=500000.0, eps=1e-5)
SDAR = dict(family="sdar", theta=1000000.0, eps=1e-6)
LLADA2 = dict(family="llada2", theta=600000.0, eps=1e-6, dense_layers=1, groups=8, groups_active=4, routed_scale=2.5)
SHAPES = {
    "llada-29m": Shape(**LLADA, layers=8, hidden=512, heads=4, kv_heads=4, head_dim=128, ffn=1536),
    "sdar-27m": Shape(**SDAR, layers=8, hidden=512, heads=4, kv_heads=2, head_dim=128, ffn=1536),
    "llada2-30m": Shape(**LLADA2, layers=6, hidden=384, heads=4, kv_heads=2, head_dim=128, ffn=1024, rotary_dim=64,
                        experts=64, experts_active=4, expert_ffn=64),
    "llada-2m": Shape(**LLADA, layers=4, hidden=192, heads=3, kv_heads=1, head_dim=64, ffn=384),
    "sdar-2m": Shape(**SDAR, layers=5, hidden=192, heads=3, kv_heads=1, head_dim=64, ffn=384, tied=True),
    "llada2-2m": Shape(**dict(LLADA2, groups=1, groups_active=1, theta=1000000.0), layers=5, hidden=192, heads=3, kv_heads=1,
                       head_dim=64, ffn=384, tied=True, experts=24, experts_active=4, expert_ffn=16, block_experts=6),
    "sdar-2m-indel": Shape(**SDAR, layers=5, hidden=192, heads=3, kv_heads=1, head_dim=64, ffn=384, tied=True),
    "sdar-2m-all": Shape(**SDAR, layers=5, hidden=192, heads=3, kv_heads=1, head_dim=64, ffn=384, tied=True),
    "llada-toy": Shape(**LLADA, layers=2, hidden=64, heads=2, kv_heads=2, head_dim=32, ffn=128),
    "sdar-toy": Shape(**SDAR, layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, ffn=128, tied=True),
    "llada2-toy": Shape(**LLADA2, layers=3, hidden=64, heads=2, kv_heads=1, head_dim=32, ffn=128, rotary_dim=16,
                        experts=16, experts_active=2, expert_ffn=32),
    "llada2-block-toy": Shape(**dict(LLADA2, groups=1, groups_active=1), layers=3, hidden=64, heads=2, kv_heads=1, head_dim=32,
                              ffn=128, rotary_dim=16, tied=True, experts=16, experts_active=2, expert_ffn=32, block_experts=4),
}


DENSE_KEYS = ("gate", "up", "down")
MIXTURE_KEYS = ("router", "e_gate", "e_up", "e_down", "s_gate", "s_up", "s_down")


def rms(x, weight, eps):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight.float()


def rotate(x, cos, sin):
    """x [B, S, heads, D] in float32; of each head the first channels are rotated, i with i + half."""
    n = cos.shape[-1]
    a, b, rest = x[..., :n], x[..., n:2 * n], x[..., 2 * n:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)


def of_blocks(choice, n):
    """[blocks, BLOCK, E] to which experts the tokens of a block may choose, [blocks, 1, E]: the n that any token of it rates
    most (LLaDA2.2)."""
    votes = choice.amax(1)
    return torch.zeros_like(votes, dtype=torch.bool).scatter(1, votes.topk(n, -1).indices, True)[:, None]


def route(x, router, bias, shape):
    """x [T, C] to experts [T, A] and their weights: sigmoid scores; the bias chooses and does not weigh; a token's experts are
    of its best groups, a group's worth being its two best scores."""
    scores = torch.sigmoid(F.linear(x.float(), router.float()))
    choice = scores + bias
    if shape.block_experts:
        by_block = choice.view(-1, BLOCK, shape.experts)
        choice = by_block.masked_fill(~of_blocks(by_block.detach(), shape.block_experts), float("-inf")).view_as(choice)
    by_group = choice.detach().view(len(x), shape.groups, -1)
    worth = by_group.topk(2, -1).values.sum(-1)
    best = worth.topk(shape.groups_active, -1).indices
    allowed = torch.zeros_like(worth, dtype=torch.bool).scatter(1, best, True)
    choice = by_group.masked_fill(~allowed[..., None], float("-inf")).flatten(1)
    experts = choice.topk(shape.experts_active, -1).indices
    weights = scores.gather(1, experts)
    return experts, weights / (weights.sum(-1, keepdim=True) + 1e-20) * shape.routed_scale


def swiglu(x, gate, up, down):
    z = F.linear(x, torch.cat((gate, up)))
    return F.linear(F.silu(z[..., :gate.shape[0]]) * z[..., gate.shape[0]:], down)


class Dispatch(torch.autograd.Function):
    """x [T, C] to rows [R, C]: row r is x[slot[r] // A], or zeros where slot[r] is T * A. place [T * A] is the way back."""

    @staticmethod
    def forward(ctx, x, slot, place, A):
        ctx.save_for_backward(place)
        ctx.A = A
        return torch.where((slot < len(x) * A)[:, None], x[(slot // A).clamp(max=len(x) - 1)], 0)

    @staticmethod
    def backward(ctx, g):
        place, = ctx.saved_tensors
        return g[place].view(-1, ctx.A, g.shape[1]).sum(1), None, None, None


class Combine(torch.autograd.Function):
    """rows [R, C] to [T, C]: the sum of a token's A rows, each times its weight, [T, A]."""

    @staticmethod
    def forward(ctx, rows, weights, slot, place):
        ctx.save_for_backward(rows, weights, slot, place)
        return (rows[place].view(*weights.shape, -1) * weights[..., None]).sum(1)

    @staticmethod
    def backward(ctx, g):
        rows, weights, slot, place = ctx.saved_tensors
        T, A = weights.shape
        at = slot.clamp(max=T * A - 1)
        g_rows = torch.where((slot < T * A)[:, None], g[at // A] * weights.flatten()[at][:, None], 0)
        g_weights = (rows[place].view(T, A, -1) * g[:, None]).sum(-1)
        return g_rows, g_weights, None, None


def mixture(x, experts, weights, gate, up, down):
    """x [T, C] through its experts: rows sorted by expert, a product by groups. Groups start at multiples of eight, which
    the product's gradient asks for on a GPU. Rows are gathered both ways, never added into one another."""
    T, A = experts.shape
    E, n = gate.shape[0], T * A
    flat = experts.flatten()
    counts = (flat[:, None] == torch.arange(E, device=x.device)).sum(0)
    padded = (counts + 7) // 8 * 8
    ends = padded.cumsum(0)
    order = torch.argsort(flat, stable=True)
    at = (ends - padded - counts.cumsum(0) + counts)[flat[order]] + torch.arange(n, device=x.device)
    slot = torch.full((n + 8 * E,), n, dtype=torch.long, device=x.device).scatter(0, at, order)
    place = torch.empty_like(order).scatter(0, order, at)
    rows = Dispatch.apply(x, slot, place, A)
    if x.is_cuda:
        ends = ends.to(torch.int32)

        def product(y, w):  # w [E, out, in]
            return F.grouped_mm(y, w.transpose(1, 2), offs=ends)
        y = product(F.silu(product(rows, gate)) * product(rows, up), down)
    else:
        at = [0] + ends.tolist()
        y = torch.cat([swiglu(rows[at[e]:at[e + 1]], gate[e], up[e], down[e]) for e in range(E)] + [rows[at[E]:] * 0])
    return Combine.apply(y, weights.to(x.dtype), slot, place)


class Model(torch.nn.Module):
    def __init__(self, name, device="cpu", dtype=torch.float32, seed=0):
        super().__init__()
        self.name, self.shape, self.dtype = name, SHAPES[name], dtype
        s = self.shape
        L, C, D, M = s.layers, s.hidden, s.head_dim, s.mixture_layers
        sizes = dict(embed=(s.vocab, C), final_norm=(C,), attn_norm=(L, C), ffn_norm=(L, C), q_norm=(L, D), k_norm=(L, D),
                     q=(L, s.heads * D, C), k=(L, s.kv_heads * D, C), v=(L, s.kv_heads * D, C), o=(L, C, s.heads * D))
        if L > M:
            sizes.update(gate=(L - M, s.ffn, C), up=(L - M, s.ffn, C), down=(L - M, C, s.ffn))
        if M:
            E, N = s.experts, s.expert_ffn
            sizes.update(router=(M, E, C), e_gate=(M, E, N, C), e_up=(M, E, N, C), e_down=(M, E, C, N),
                         s_gate=(M, N, C), s_up=(M, N, C), s_down=(M, C, N))
            self.register_buffer("expert_bias", torch.zeros(M, E, device=device))
        if not s.tied:
            sizes["head"] = (s.vocab, C)
        generator = torch.Generator().manual_seed(seed)
        self.w = torch.nn.ParameterDict()
        for key, size in sizes.items():
            if key.endswith("norm"):
                value = torch.ones(size)
            elif key in ("o", "down", "e_down", "s_down") or key == "head":
                value = torch.zeros(size)
            else:
                value = torch.randn(size, generator=generator) * (0.02 if key == "embed" else 0.6 / math.sqrt(size[-1]))
            self.w[key] = torch.nn.Parameter(value.to(device))
        angles = torch.outer(torch.arange(MAX_POSITIONS, dtype=torch.float64),
                             s.theta ** -(torch.arange(0, s.rotated, 2, dtype=torch.float64) / s.rotated))
        self.register_buffer("cos", angles.cos().float().to(device), persistent=False)
        self.register_buffer("sin", angles.sin().float().to(device), persistent=False)

    @torch.no_grad()
    def begin_with(self, other):
        """The weights of another model of the same shape; or, where this one has experts and that one a dense layer, each
        expert gets a part of the layer's width."""
        s = self.shape
        if other.shape.experts == s.experts:
            self.load_state_dict(other.state_dict())
            return
        width = (s.experts, s.expert_ffn)
        for key, p in self.w.items():
            if key in ("e_gate", "e_up"):
                p.copy_(other.w[key[2:]][s.dense_layers:].unflatten(1, width))
            elif key == "e_down":
                p.copy_(other.w["down"][s.dense_layers:].unflatten(2, width).permute(0, 2, 1, 3))
            elif key in DENSE_KEYS:
                p.copy_(other.w[key][:s.dense_layers])
            elif key not in MIXTURE_KEYS:
                p.copy_(other.w[key])

    def n_parameters(self):
        return sum(p.numel() for p in self.parameters()) + sum(b.numel() for k, b in self.named_buffers() if "bias" in k)

    def head(self):
        return self.w["embed" if self.shape.tied else "head"]

    def layer(self, x, cos, sin, w, attend):
        """One layer with its weights w, by key: the rows after it, and the experts that a mixture chose."""
        s, t = self.shape, self.dtype
        B, S, _ = x.shape
        n_q, n_k = s.heads * s.head_dim, s.kv_heads * s.head_dim
        y = rms(x, w["attn_norm"], s.eps).to(t)
        qkv = F.linear(y, torch.cat((w["q"], w["k"], w["v"])).to(t))
        q, k, v = (part.view(B, S, -1, s.head_dim) for part in qkv.split((n_q, n_k, n_k), -1))
        q = rotate(rms(q, w["q_norm"], s.eps), cos, sin).to(t)
        k = rotate(rms(k, w["k_norm"], s.eps), cos, sin).to(t)
        y = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        x = x + F.linear(y.transpose(1, 2).reshape(B, S, n_q), w["o"].to(t))
        y = rms(x, w["ffn_norm"], s.eps).to(t)
        if "gate" in w:
            return x + swiglu(y, w["gate"].to(t), w["up"].to(t), w["down"].to(t)), None
        rows = y.view(B * S, -1)
        experts, weights = route(rows, w["router"], w["bias"], s)
        z = mixture(rows, experts, weights, *(w[key].to(t) for key in ("e_gate", "e_up", "e_down")))
        z = z + swiglu(rows, *(w[key].to(t) for key in ("s_gate", "s_up", "s_down")))
        return x + z.view(B, S, -1), experts.view(B, S, -1)

    def layer_weights(self):
        s, parts = self.shape, {k: p.unbind(0) for k, p in self.w.items() if k not in ("embed", "final_norm", "head")}
        out = []
        for i in range(s.layers):
            m = i - s.dense_layers
            is_mixture = s.experts > 0 and m >= 0
            w = {k: p[m if k in MIXTURE_KEYS else i] for k, p in parts.items()
                 if k in MIXTURE_KEYS and is_mixture or k in DENSE_KEYS and not is_mixture
                 or k not in MIXTURE_KEYS + DENSE_KEYS}
            out.append(dict(w, bias=self.expert_bias[m]) if is_mixture else w)
        return out

    def trunk(self, ids, places, attend, layer=None, loads=None):
        """ids and places [B, S] to the last layer's rows [B, S, C]. attend(q, k, v) gets [B, heads, S, D] each; or a list of
        such, one a layer. layer: the layer's function, compiled. loads: a list that gets each mixture's experts, [B, S, A]."""
        x = F.embedding(ids, self.w["embed"]).to(self.dtype)
        cos, sin = self.cos[places][:, :, None], self.sin[places][:, :, None]
        for i, w in enumerate(self.layer_weights()):
            x, experts = (layer or self.layer)(x, cos, sin, w, attend[i] if isinstance(attend, list) else attend)
            if loads is not None and experts is not None:
                loads.append(experts)
        return x

    def logits(self, x):
        return F.linear(rms(x, self.w["final_norm"], self.shape.eps).to(x.dtype), self.head().to(x.dtype)).float()


def dense_attention(mask):
    """mask [B, 1, S, S'], true where a query sees a key."""
    def attend(q, k, v):
        n = q.shape[1] // k.shape[1]
        if n > 1:
            k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return attend


# ---- who sees whom in packed rows ----

def sees(text, place, until, group, first, is_noisy):
    """[B, S] each. What is clean is seen by all rows of its text whose `until` is behind its place. What is noisy is seen by
    the noisy rows of its text whose groups, `first` to `group`, have it."""
    def rule(b, h, i, j):
        behind = is_noisy[b, i] & (first[b, i] <= group[b, j]) & (group[b, j] <= group[b, i])
        return (text[b, i] == text[b, j]) & (is_noisy[b, j] & behind | ~is_noisy[b, j] & (place[b, j] < until[b, i]))
    return rule


def dense_mask(rule, B, S, device):
    b = torch.arange(B, device=device)[:, None, None, None]
    i, j = torch.arange(S, device=device)[:, None], torch.arange(S, device=device)
    return rule(b, 0, i, j)
