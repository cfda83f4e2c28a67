"""Trains one model on packed rows, for so many minutes or steps; goes on from its last state.

  train.py --model sdar-27m --data FOLDER --work FOLDER --minutes 7

WORK gets state.pt (weights, optimizer, random state, place in the data), log.jsonl and, at the end, the exported folder.
"""

import argparse
import faulthandler
import json
import math
import os
import signal
import time

import numpy as np
import torch
import torch.nn.functional as F

import data
import export
import model as models
from model import BLOCK


class Rows:
    """The rows of all chunks in order, again and again, in a new order within a chunk each time. Its state is three numbers.
    It waits for chunks that are still being made."""

    def __init__(self, folder, count, layout, seed):
        self.folder, self.count, self.layout, self.seed = folder, count, layout, seed
        self.state = dict(round=0, chunk=0, row=0)
        self.loaded = None

    def _load(self):
        path = data.chunk_path(self.folder, self.state["chunk"])
        began = time.time()
        while not os.path.exists(path):
            if time.time() - began > 300:
                raise SystemExit(f"{path}: not there after 300 s")
            time.sleep(0.05)
        with np.load(path) as z:
            self.loaded = [z[f"{self.layout}_{part}"] for part in data.parts_of(self.layout)]
        order = np.random.default_rng((self.seed, self.state["round"], self.state["chunk"])).permutation(len(self.loaded[0]))
        self.loaded = [a[order] for a in self.loaded]

    def peek(self):
        if self.loaded is None:
            self._load()

    def take(self, n):
        parts = []
        while n > 0:
            self.peek()
            at = self.state["row"]
            got = [a[at:at + n] for a in self.loaded]
            parts.append(got)
            n -= len(got[0])
            self.state["row"] = at + len(got[0])
            if self.state["row"] == len(self.loaded[0]):
                chunk = self.state["chunk"] + 1
                self.state = dict(round=self.state["round"] + chunk // self.count, chunk=chunk % self.count, row=0)
                self.loaded = None
        return [np.concatenate(a) for a in zip(*parts)]


# ---- what is masked, and what each masked place weighs ----

N_TEXTS = 256  # more than a row has; fixed, so that nothing waits for the device


def fills(ids):
    """True where an end of text follows an end of text."""
    end = ids == data.END_ID
    return end & F.pad(end[:, :-1], (1, 0))


def mask_blocks(ids, answer, generator):
    """In each block, of its n output places k are masked, k even from 1 to n; a masked place weighs n / k. Returns which, and
    the weights. ids and answer [B, S], S a multiple of BLOCK."""
    B, S = ids.shape
    shape = (B, S // BLOCK, BLOCK)
    noise = torch.rand(shape, generator=generator, device=ids.device).masked_fill(~answer.view(shape), 2.0)
    n = answer.view(shape).sum(-1, keepdim=True)
    k = 1 + (torch.rand(n.shape, generator=generator, device=ids.device) * n).long().clamp(max=(n - 1).clamp(min=0))
    rank = noise.argsort(-1).argsort(-1)
    masked = (rank < k) & answer.view(shape)
    weight = masked * (n / k)
    return masked.view(B, S), weight.view(B, S)


def mask_canvases(ids, kind, text, generator, args):
    """Each text either as decoding by blocks meets it (one block in part masked, and with args.open more after it ever more so,
    all behind them masked, all before known) or at one rate all over its output, as LLaDA is trained. kind: 0 prompt, then
    blocks from the prompt's end."""
    B, S = ids.shape
    device, n_texts = ids.device, N_TEXTS
    answer = kind > 0
    real = answer & ~fills(ids)
    by_text = lambda values: values.gather(1, text)  # noqa: E731
    u = torch.rand((3, B, n_texts), generator=generator, device=device)
    # The block is one of those that the solution reaches; a text weighs as many blocks as it has.
    last = torch.zeros((B, n_texts), dtype=torch.long, device=device).scatter_reduce(1, text, kind * real, "amax")
    block = by_text(1 + (u[0] * last).long().clamp(max=(last - 1).clamp(min=0)))
    here, behind = answer & (kind == block), answer & (kind > block)
    # k of the block's places: a text's block is at most BLOCK places in a row, so their ranks are counted by text.
    k = by_text(1 + (u[1] * BLOCK).long().clamp(max=BLOCK - 1))
    size = by_text(torch.zeros((B, n_texts), dtype=torch.long, device=device).scatter_add(1, text, here.long()))
    k = torch.minimum(k, size)
    noise = torch.rand((B, S), generator=generator, device=device)
    order = (text * 2 + noise.masked_fill(~here, 1.5)).argsort(1)  # by text; the block's places first, at random
    first = torch.zeros_like(text).scatter(1, order, torch.arange(S, device=device).expand(B, S))
    begin = torch.full((B, n_texts), S, device=device).scatter_reduce(1, text, first, "amin")
    chosen = here & (first - by_text(begin) < k)
    blocks = by_text(last).float()
    weight_b = chosen * (size / k.clamp(min=1)) + 0.1 * behind
    if args.open > 1:  # as several blocks in flight leave them
        v = torch.rand((2, B, n_texts), generator=generator, device=device)
        most = 1 + by_text((v[0] * args.open).long())
        known = behind & (noise < by_text(v[1]) * (1 - (kind - block) / most))
        behind = behind & ~known
        weight_b = chosen * (size / k.clamp(min=1)) + torch.where(kind - block < most, 0.5, 0.1) * behind
    rate = by_text(u[2]).clamp(min=1 / BLOCK)
    chosen_u = answer & (noise < rate)
    weight_u = chosen_u / rate
    is_block = by_text(torch.rand((B, n_texts), generator=generator, device=device)) < args.block_share
    masked = torch.where(is_block, chosen | behind, chosen_u)
    weight = torch.where(is_block, weight_b * blocks, weight_u)
    return masked, weight


def seconds(block, is_noisy, text, share, generator):
    """Of so many texts every other noisy block, but never the first, is one that sees the noisy block before it, as decoding
    of two blocks at once meets it."""
    B = len(text)
    u = torch.rand((2, B, N_TEXTS), generator=generator, device=text.device)
    far = torch.full((B, N_TEXTS), data.ROW, device=text.device)
    since = block - far.scatter_reduce(1, text, torch.where(is_noisy, block, data.ROW), "amin").gather(1, text)
    odd, is_paired = (u[0] < 0.5).gather(1, text), (u[1] < share).gather(1, text)
    return is_noisy & is_paired & (since > 0) & ((since + odd) % 2 == 1)


def spoil(seen, masked, answer, wrong, generator):
    """Puts random tokens in place of some that are not masked, in some blocks. Returns what the model sees, and where."""
    B, S = seen.shape
    u = torch.rand((2, B, S // BLOCK, 1), generator=generator, device=seen.device)
    rate = torch.where(u[0] < wrong, 0.3 * u[1], 0.0).expand(-1, -1, BLOCK).reshape(B, S)
    spoilt = answer & ~masked & (torch.rand((B, S), generator=generator, device=seen.device) < rate)
    return torch.where(spoilt, any_tokens(seen, generator), seen), spoilt


def few_masks(ids, generator):
    """Half of the blocks have next to no masks, as those have that are being put in order. Returns which masks are left, and
    the places of such blocks."""
    B, S = ids.shape
    few = torch.rand((B, S // BLOCK, 1), generator=generator, device=ids.device).expand(-1, -1, BLOCK).reshape(B, S) < 0.5
    return ~few | (torch.rand((B, S), generator=generator, device=ids.device) < 0.1), few


def any_tokens(like, generator):
    return torch.randint(data.VOCAB, like.shape, generator=generator, device=like.device)


def prepare(layout, batch, device, generator, args):
    """A batch of rows to what the model reads, places, targets, weights, the rule of who sees whom, and which places the
    model may fill itself before it learns."""
    ids, place, kind, *rest, text = (torch.from_numpy(a.astype(np.int32)).to(device, non_blocking=True).long() for a in batch)
    targets, block = rest[0] if rest else ids, place // BLOCK
    is_noisy = kind > 0
    group, until = block, block + 1
    first = group
    if layout == "canvas":
        masked, weight = mask_canvases(ids, kind, text, generator, args)
        weight = weight * torch.where(fills(ids), 0.1, 1.0)
        is_noisy, until = torch.zeros_like(masked), torch.full_like(place, data.ROW)
        seen = torch.where(masked, data.MASK_ID, ids)
    elif layout == "noise":
        masked, _ = mask_blocks(ids, is_noisy, generator)
        weight = is_noisy * torch.where(fills(ids), 0.2, 1.0)
        seen = torch.where(masked, any_tokens(ids, generator), ids)
        # A canvas's places follow one another, so the first is as far back as the row is in its block of the row.
        begin = place - torch.arange(ids.shape[1], device=device) % BLOCK
        group = first = kind
        until = torch.where(is_noisy, begin, place + 1)
    else:
        answer = kind == 1
        masked, weight = mask_blocks(ids, answer, generator)
        seen = torch.where(masked, data.MASK_ID, ids)
        first = block - seconds(block, is_noisy, text, args.pairs, generator).long()
        until = torch.where(is_noisy, first, block + 1) * BLOCK
        if layout == "indel":  # what is to be deleted or moved stays in sight
            few = few_masks(ids, generator)
            masked = masked & few[0] & ((targets < data.DELETE_ID) | (targets > data.INSERT_ID))
            seen = torch.where(masked, data.MASK_ID, ids)
            weight = torch.where(masked, torch.where(few[1], 1.0, weight), answer * torch.where(ids == targets, 0.2, 1.0))
        elif args.wrong or args.draws:
            seen, spoilt = spoil(seen, masked, answer, args.wrong, generator)
            weight = torch.where(masked, weight, answer * torch.where(spoilt, 1.0, 0.2))
        if layout != "indel":  # there a place that is to stay weighs less already, and a block's end has to be learned
            weight = weight * torch.where(fills(targets), 0.2, 1.0)
    narrow = (t.to(torch.int32) for t in (text, place, until, group, first))
    return seen, place, targets, weight, models.sees(*narrow, is_noisy), masked


# ---- optimizer: Muon for matrices inside the layers, Adam for the rest ----

def orthogonal(g):
    """[N, a, b]: each matrix to nearly the orthogonal one next to it, by five Newton-Schulz steps (Jordan et al., Muon)."""
    x = g.bfloat16() if g.is_cuda else g.float()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        y = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * y + 2.0315 * (y @ y)) @ x
    return x.transpose(1, 2) if tall else x


class Optimizer:
    def __init__(self, net, args):
        self.args = args
        self.matrices = {k: p for k, p in net.w.items() if p.dim() >= 3 and k != "router"}
        rest = [dict(params=[p for k, p in net.w.items() if k in ("embed", "head")], lr=args.adam_lr),
                dict(params=[p for k, p in net.w.items() if k not in self.matrices and k not in ("embed", "head")],
                     lr=0.5 * args.adam_lr)]
        fused = next(net.parameters()).is_cuda
        self.adam = torch.optim.Adam(rest, betas=(0.9, 0.98), eps=1e-10, fused=fused)
        for group in self.adam.param_groups:
            group["base"] = group["lr"]
        self.momentum = {k: torch.zeros_like(p) for k, p in self.matrices.items()}

    @torch.no_grad()
    def step(self, rate):
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * rate
        self.adam.step()
        lr = self.args.lr * rate
        for k, p in self.matrices.items():
            m, g = self.momentum[k], p.grad
            m.lerp_(g, 0.05)
            update = orthogonal(torch.lerp(g, m, 0.95).flatten(0, -3)).view_as(p)
            p.mul_(1 - lr * self.args.decay)
            p.add_(update.to(p.dtype), alpha=-lr * math.sqrt(max(1.0, p.shape[-2] / p.shape[-1])))

    def state(self):
        return dict(adam=self.adam.state_dict(), momentum=self.momentum)

    def restore(self, state):
        self.adam.load_state_dict(state["adam"])
        for k, m in self.momentum.items():
            m.copy_(state["momentum"][k])


def rate_at(progress, args):
    """Up at once, level, down to nothing."""
    if progress < args.warmup:
        return max(progress / args.warmup, 0.01)
    return min(1.0, max(0.0, (1 - progress) / args.cooldown))


# ---- training ----

class Trainer:
    def __init__(self, args):
        self.args, self.device = args, torch.device(args.device)
        self.is_cuda = self.device.type == "cuda"
        self.net = models.Model(args.model, self.device, torch.bfloat16 if self.is_cuda else torch.float32, args.seed)
        self.shape = self.net.shape
        self.optimizer = Optimizer(self.net, args)
        self.layouts = (args.layouts.split(",") if self.shape.is_block_causal else
                        ["canvas", "block"] if args.blocks_first else ["canvas"])
        self.rows = {layout: Rows(args.data, args.chunks, layout, args.seed) for layout in self.layouts}
        self.random = torch.Generator(device=self.device).manual_seed(args.seed)
        self.step, self.seconds = 0, 0.0
        os.makedirs(args.work, exist_ok=True)
        self.log = open(os.path.join(args.work, "log.jsonl"), "a", encoding="utf-8")
        self.layer, self.head_loss = self.net.layer, self.head_loss_of
        self.is_flex = self.is_cuda and not args.dense
        if self.is_flex:
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention
            self.flex = torch.compile(flex_attention) if args.eager else flex_attention
            self.block_mask = create_block_mask if args.eager else torch.compile(create_block_mask)
        if self.is_cuda and not args.eager:  # layer by layer: all layers of a kind are one graph
            self.layer = torch.compile(self.net.layer, dynamic=False)
            self.head_loss = torch.compile(self.head_loss_of, dynamic=False)

    def say(self, **what):
        line = json.dumps(dict(step=self.step, seconds=round(self.seconds, 1), **what))
        print(line, flush=True)
        self.log.write(line + "\n")
        self.log.flush()

    def head_loss_of(self, x, norm, head, targets, weights):
        logits = F.linear(models.rms(x, norm, self.shape.eps).to(x.dtype), head.to(x.dtype)).float().flatten(0, 1)
        ce = F.cross_entropy(logits, targets.flatten(), reduction="none")
        w = weights.flatten()
        hit = ((logits.argmax(-1) == targets.flatten()) & (w > 0)).sum()
        return (ce * w).sum() / w.sum().clamp(min=1), torch.stack((hit, (w > 0).sum()))

    def rows_of(self, ids, places, mask, chosen=None):
        def attend(q, k, v):
            return self.flex(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])
        return self.net.trunk(ids, places, attend if self.is_flex else models.dense_attention(mask), self.layer, chosen)

    def loss(self, ids, places, targets, weights, mask):
        chosen = []
        x = self.rows_of(ids, places, mask, chosen)
        loss, hits = self.head_loss(x, self.net.w["final_norm"], self.net.head(), targets, weights)
        return loss, hits, torch.stack([self.loads(e) for e in chosen]) if chosen else None

    def loads(self, experts):
        flat = experts.flatten()
        return torch.zeros(self.shape.experts, device=flat.device).scatter_add(0, flat, torch.ones(len(flat), device=flat.device))

    def mask_of(self, rule, ids):
        B, S = ids.shape
        if self.is_flex:
            return self.block_mask(rule, B, None, S, S, device=self.device)
        return models.dense_mask(rule, B, S, self.device)

    def layout(self):
        """Of the next step's rows: a bidirectional model begins with three steps of four on block-causal rows, others take
        those that they were given by turns."""
        if self.shape.is_block_causal:
            return self.layouts[self.step % len(self.layouts)]
        return "block" if self.progress() < self.args.blocks_first and self.step % 4 else "canvas"

    @torch.no_grad()
    def draw(self, seen, places, masked, mask):
        """Fills some of the masked places of some blocks with what the model draws there, each for itself: mistakes as it
        makes them when it decides too much at once."""
        B, S = seen.shape
        random = dict(generator=self.random, device=self.device)
        logits = self.net.logits(self.rows_of(seen, places, mask))
        logits[..., [data.MASK_ID, data.DELETE_ID, data.INSERT_ID]] = float("-inf")
        drawn = (logits - torch.log(-torch.log(torch.rand(logits.shape, **random).clamp(1e-9, 1 - 1e-7)))).argmax(-1)
        u = torch.rand((2, B, S // BLOCK, 1), **random)
        rate = torch.where(u[0] < self.args.draws, u[1], 0.0).expand(-1, -1, BLOCK).reshape(B, S)
        return torch.where(masked & (torch.rand((B, S), **random) < rate), drawn, seen)

    def one_step(self, rate):
        a, layout = self.args, self.layout()
        total = hits = loads = 0
        for _ in range(a.micro):
            ids, places, targets, weights, rule, masked = prepare(layout, self.rows[layout].take(a.rows // a.micro),
                                                                  self.device, self.random, a)
            mask = self.mask_of(rule, ids)
            if a.draws:
                ids = self.draw(ids, places, masked, mask)
            loss, hit, load = self.loss(ids, places, targets, weights, mask)
            (loss / a.micro).backward()
            total, hits = total + loss.detach() / a.micro, hits + hit
            loads = loads + load if load is not None else 0
        self.optimizer.step(rate)
        self.net.zero_grad(set_to_none=True)
        if self.shape.experts:  # experts with less than their share are chosen more easily from now on
            share = loads / loads.sum(-1, keepdim=True)
            self.net.expert_bias += a.balance * max(rate, 0.1) * torch.sign(1 / self.shape.experts - share)
            self.hottest = share.max() * self.shape.experts
        return total, hits

    def state_path(self):
        return os.path.join(self.args.work, "state.pt")

    def save(self):
        state = dict(model=self.args.model, net=self.net.state_dict(), optimizer=self.optimizer.state(), rows={k: r.state for k, r in self.rows.items()},
                     random=self.random.get_state(), step=self.step, seconds=self.seconds)
        torch.save(state, self.state_path() + ".part")
        os.rename(self.state_path() + ".part", self.state_path())

    def resume(self):
        state = torch.load(self.state_path(), map_location=self.device, weights_only=True)
        if state["model"] != self.args.model:
            raise SystemExit(f"{self.state_path()} is of {state['model']}")
        self.net.load_state_dict(state["net"])
        self.optimizer.restore(state["optimizer"])
        for layout, rows in self.rows.items():
            rows.state, rows.loaded = state["rows"][layout], None
        self.random.set_state(state["random"].cpu())
        self.step, self.seconds = state["step"], state["seconds"]
        self.say(resumed=True)

    def progress(self):
        a = self.args
        return self.step / a.steps if a.steps else self.seconds / (60 * a.minutes)

    def run(self):
        a = self.args
        self.say(model=a.model, parameters=self.net.n_parameters(), torch=torch.__version__,
                 device=torch.cuda.get_device_name() if self.is_cuda else "cpu", arguments=vars(a))
        if self.is_cuda and self.progress() < 1:  # compile before the clock runs; nothing of this step stays
            for rows in self.rows.values():
                rows.peek()
            began = time.time()
            self.warm_up()
            self.say(compiled_seconds=round(time.time() - began, 1))
        while a.after and not os.path.exists(a.after):
            time.sleep(0.1)
        if a.until:
            a.minutes = max(self.seconds + a.until - time.time(), 1) / 60
        last = saved = time.time()
        last_step, stop_step = self.step, self.step + a.stop_after if a.stop_after else None
        while self.progress() < 1 and self.step != stop_step:
            began = time.time()
            total, hits = self.one_step(rate_at(self.progress(), a))
            self.step += 1
            if self.step % a.log_every == 0:
                hit, n = hits.tolist()  # waits for the device
                now = time.time()
                rows = (self.step - last_step) * a.rows * data.ROW
                more = dict(hottest_expert=round(float(self.hottest), 2)) if self.shape.experts else {}
                self.say(loss=round(float(total), 4), hits=round(hit / max(n, 1), 4), rate=round(rate_at(self.progress(), a), 4),
                         rows_per_second=round(rows / (now - last)), layout=self.layout(),
                         chunk={k: [r.state["round"], r.state["chunk"]] for k, r in self.rows.items()}, **more)
                last, last_step = now, self.step
            elif self.is_cuda and self.step % 4 == 0:
                torch.cuda.synchronize()  # so that the seconds are those of the work
            self.seconds += time.time() - began
            if time.time() - saved > a.save_seconds:
                self.save()
                saved = time.time()
        self.save()
        self.say(done=self.progress() >= 1)
        export.write(self.net, os.path.join(a.work, "export"))

    def warm_up(self):
        layout, rows = next(iter(self.rows.items()))
        state, random = dict(rows.state), self.random.get_state()
        ids, places, targets, weights, rule, masked = prepare(layout, rows.take(self.args.rows // self.args.micro), self.device,
                                                              self.random, self.args)
        mask = self.mask_of(rule, ids)
        if self.args.draws:
            self.draw(ids, places, masked, mask)
        self.loss(ids, places, targets, weights, mask)[0].backward()
        self.net.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        rows.state, rows.loaded = state, None
        self.random.set_state(random)


def arguments(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True, choices=tuple(models.SHAPES))
    ap.add_argument("--data", required=True, help="folder of chunks")
    ap.add_argument("--chunks", type=int, default=64, help="how many there are or will be; default: 64")
    ap.add_argument("--work", required=True, help="folder of the state, the log and the exported model")
    ap.add_argument("--minutes", type=float, default=7, help="of training, compilation not counted; default: 7")
    ap.add_argument("--steps", type=int, default=0, help="instead of minutes")
    ap.add_argument("--stop-after", type=int, default=0, help="stop after so many steps now, to be resumed; default: go on")
    ap.add_argument("--rows", type=int, default=32, help=f"rows of {data.ROW} tokens a step; default: 32")
    ap.add_argument("--micro", type=int, default=1, help="batches a step; default: 1")
    ap.add_argument("--init", help="begin with the weights of an exported folder, whose dense layers may become experts; default: random ones")
    ap.add_argument("--until", type=float, default=0, help="train until then, in seconds since 1970, instead of minutes")
    ap.add_argument("--after", help="compile at once, but begin when this file is there")
    ap.add_argument("--lr", type=float, default=0.02, help="of Muon; default: 0.02")
    ap.add_argument("--adam-lr", type=float, default=0.003, help="of embedding and head; half of it for norms; default: 0.003")
    ap.add_argument("--decay", type=float, default=0.01, help="weight decay of matrices, times the rate; default: 0.01")
    ap.add_argument("--warmup", type=float, default=0.01, help="share of the training; default: 0.01")
    ap.add_argument("--cooldown", type=float, default=0.6, help="share of the training; default: 0.6")
    ap.add_argument("--block-share", type=float, default=0.7, help="llada: texts masked as decoding meets them; default: 0.7")
    ap.add_argument("--blocks-first", type=float, default=0.5,
                    help="llada: share of the training in which three steps of four are block-causal; default: 0.5")
    ap.add_argument("--layouts", default="block", help="block-causal: by turns, of block, noise, indel, one of them twice if it counts twice; default: block")
    ap.add_argument("--pairs", type=float, default=0, help="texts whose blocks are learned two at once; default: 0")
    ap.add_argument("--wrong", type=float, default=0, help="blocks with random tokens in place of known ones; default: 0")
    ap.add_argument("--draws", type=float, default=0, help="blocks in which the model's own draws are to be corrected; default: 0")
    ap.add_argument("--open", type=int, default=1, help="llada: most blocks in flight; default: 1")
    ap.add_argument("--balance", type=float, default=0.01, help="step of the experts' biases; default: 0.01")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--eager", action="store_true", help="compile the attention at most")
    ap.add_argument("--dense", action="store_true", help="attention with a mask of all pairs, not PyTorch's flex_attention")
    ap.add_argument("--log-every", type=int, default=50)
    ap.add_argument("--save-seconds", type=float, default=90)
    return ap.parse_args(argv)


def main():
    faulthandler.register(signal.SIGUSR1)  # kill -USR1 says where it is
    args = arguments()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    trainer = Trainer(args)
    if os.path.exists(trainer.state_path()):
        trainer.resume()
    elif args.init:
        trainer.net.begin_with(export.load(args.init))
    trainer.run()


if __name__ == "__main__":
    main()
