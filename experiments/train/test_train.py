"""Checks that need no GPU, a minute in all: python3 test_train.py (or pytest test_train.py)."""

import os
import tempfile

import numpy as np
import torch

import data
import decode
import experts
import export
import model as models
import train

TOYS = ("llada-toy", "sdar-toy", "llada2-toy")
data.ROW = 512  # short rows for short texts
torch.set_num_threads(1)


def a_model(name, seed=3):
    """With outputs that are not all alike."""
    net = models.Model(name, seed=seed)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in net.w.values():
            p.add_(torch.randn(p.shape, generator=g) * 0.05)
        if net.shape.experts:
            net.expert_bias.copy_(torch.randn(net.expert_bias.shape, generator=g) * 0.1)
    return net


def problems(n):
    """Texts for a chunk without reasoning-gym: short ones."""
    from random import Random
    import tasks
    r, out = Random(4), []
    while len(out) < n:
        p = tasks.generated(r.choice(("multiply", "hops")), r, False)
        if len(p.prompt) + len(p.solution) < 260:
            out.append(p)
    return out


def chunk_of(folder, pairs):
    from random import Random
    r, arrays = Random(1), {}
    for name, layout in (("block", data.block_row), ("canvas", data.canvas_row)):
        for part, array in zip(data.PARTS, data.pack([layout(p, o, r) for p, o in pairs], r)):
            arrays[f"{name}_{part}"] = array
    np.savez(data.chunk_path(folder, 0), **arrays)


def encoded(some):
    tk = data.load_tokenizer()
    return [(tk.encode(p.prompt).ids, tk.encode(p.solution).ids + [data.END_ID]) for p in some]


def arguments(name, folder, work, *more):
    return train.arguments(["--model", name, "--data", folder, "--chunks", "1", "--work", work, "--device", "cpu", *more])


def test_packed_rows_hold_every_text_once():
    from random import Random
    pairs = encoded(problems(60))
    for layout in (data.block_row, data.canvas_row):
        texts = [layout(p, o, Random(7)) for p, o in pairs]
        rows = data.pack(texts, Random(2))
        found = []
        for row in zip(*rows):
            ids, place, kind, text = (a.tolist() for a in row)
            assert all(i == data.PAD_ID for i, t in zip(ids, text) if t == 0)
            for number in range(1, max(text) + 1):
                at = [i for i, t in enumerate(text) if t == number]
                assert at == list(range(at[0], at[-1] + 1))
                found.append([[part[i] for i in at] for part in (ids, place, kind)])
        assert sorted(found) == sorted([list(map(int, part)) for part in t] for t in texts)


def test_a_block_row_is_the_text_and_its_output_once_more():
    from random import Random
    for prompt, output in encoded(problems(20)):
        ids, place, kind = data.block_row(prompt, output, Random(3))
        masked = [i for i, k in enumerate(kind) if k > 0]
        assert len(ids) % 32 == 0 and len(masked) % 32 == 0 and place[masked[0]] == len(prompt) // 32 * 32
        copy = [ids[i] for i in masked if kind[i] == 1]
        assert copy[:len(output)] == output and set(copy[len(output):]) <= {data.END_ID}
        whole = ids[:masked[0]] + ids[-32:]
        assert whole[:len(prompt) + len(output)] == (prompt + output)[:len(whole)]


def test_masks_weigh_every_block_alike():
    g = torch.Generator().manual_seed(1)
    answer = torch.zeros(4, 256, dtype=torch.bool)
    answer[:, 40:200] = True
    masked, weight = train.mask_blocks(torch.zeros(4, 256, dtype=torch.long), answer, g)
    assert not (masked & ~answer).any() and masked.view(4, 8, 32)[:, 1:6].any(-1).all()
    sums = weight.view(4, 8, 32).sum(-1)
    assert torch.allclose(sums[:, 1:7], torch.tensor([24.0, 32, 32, 32, 32, 8]).expand(4, -1))


def test_canvases_are_masked_as_decoding_meets_them():
    from random import Random
    pairs = encoded(problems(40))
    ids, _, kind, text = (torch.from_numpy(a.astype(np.int64)) for a in data.pack([data.canvas_row(p, o, Random(1))
                                                                                  for p, o in pairs], Random(3)))
    masked, weight = train.mask_canvases(ids, kind, text, torch.Generator().manual_seed(1), 1.0)
    assert not (masked & (kind == 0)).any()
    for row in range(len(ids)):
        for number in text[row].unique():
            of = (text[row] == number) & (ids[row] != data.PAD_ID) & (kind[row] > 0)
            blocks = sorted(set(kind[row, of].tolist()))
            state = [masked[row, of & (kind[row] == b)].float().mean().item() for b in blocks]
            heavy = [b for b in blocks if (weight[row, of & (kind[row] == b)] > 0.5).any()]
            if blocks:
                at = blocks.index(heavy[0])
                assert len(heavy) == 1 and state[at] > 0
                assert all(s == 0 for s in state[:at]) and all(s == 1 for s in state[at + 1:])


def test_what_training_sees_is_what_decoding_sees():
    """Block-causal: a masked block beside clean ones gives the logits of the same block against stored keys and values.
    Bidirectional: a text in a packed row gives the logits that it gives alone."""
    from random import Random
    pairs = encoded(problems(6))
    for name in TOYS:
        net = a_model(name)
        layout, row_of = ("block", data.block_row) if net.shape.is_block_causal else ("canvas", data.canvas_row)
        rows = [a[:1] for a in data.pack([row_of(p, o, Random(1)) for p, o in pairs], Random(1))]
        seen, place, ids, _, rule = train.prepare(layout, rows, "cpu", torch.Generator().manual_seed(2),
                                                  arguments(name, "", tempfile.mkdtemp()))
        assert (seen != ids).any()
        with torch.no_grad():
            packed = net.logits(net.trunk(seen, place, models.dense_attention(models.dense_mask(rule, 1, data.ROW, "cpu"))))[0]
        at = (torch.from_numpy(rows[3][0]) == 1).nonzero().flatten()  # the first text of several
        with torch.no_grad():
            if layout == "block":
                kind = torch.from_numpy(rows[2][0])[at]
                last = at[-32:]
                known = ids[0, at[kind == 0]].tolist()
                assert len(known) == place[0, last[0]]
                b = decode.Blocks(net, [known], 32)
                b.ids[0, -32:] = seen[0, last]
                assert torch.allclose(packed[last], b.run(False)[0], atol=2e-4), name
            else:
                n = len(at)
                alone = net.logits(net.trunk(seen[:, at], torch.arange(n)[None], models.dense_attention(
                    torch.ones(1, 1, n, n, dtype=torch.bool)))[0])
                assert torch.allclose(packed[at], alone, atol=2e-4)


def test_experts_mix_and_learn_as_one_by_one():
    """Products by groups against every expert's own, and their gradients."""
    g = torch.Generator().manual_seed(5)
    x, gate, up = (torch.randn(*n, generator=g, requires_grad=True) for n in ((40, 16), (8, 12, 16), (8, 12, 16)))
    down, weights = (torch.randn(*n, generator=g, requires_grad=True) for n in ((8, 16, 12), (40, 3)))
    experts = torch.rand(40, 8, generator=g).topk(3, -1).indices
    target = torch.randn(40, 16, generator=g)
    plain = sum(torch.stack([models.swiglu(x[t], gate[e], up[e], down[e]) for t, e in enumerate(experts[:, a])])
                * weights[:, a:a + 1] for a in range(3))
    mixed = models.mixture(x, experts, weights, gate, up, down)
    assert torch.allclose(plain, mixed, atol=1e-4)
    inputs = (x, gate, up, down, weights)
    for a, b in zip(*(torch.autograd.grad((y * target).sum(), inputs) for y in (plain, mixed))):
        assert torch.allclose(a, b, atol=1e-3)


def test_decoding_together_is_decoding_alone():
    prompts = [p for p, _ in encoded(problems(5))]
    for name in TOYS:
        net = a_model(name)
        for threshold in (None, 0.02):
            together = decode.decode(net, prompts, 70, threshold)
            alone = [decode.decode(net, [p], 70, threshold)[0] for p in prompts]
            assert [o.ids for o in together] == [o.ids for o in alone], name
            assert [o.passes for o in together] == [o.passes for o in alone]


def test_experts_are_counted_in_every_pass_that_commits():
    net = a_model("llada2-toy")
    prompts = [(p * 4)[:64] for p, _ in encoded(problems(4))]  # so that outputs of 160 end with a block
    counter = experts.measure(net, prompts, None)
    passes = sum(o.passes for o in decode.decode(net, prompts, 160))
    layers = net.shape.mixture_layers
    assert counter.sums["tokens", 32][1] == passes * layers and torch.cat(counter.blocks, 1).shape[:2] == (layers, passes)
    assert 2 <= counter.mean(("tokens", 8)) <= counter.mean(("tokens", 32)) <= 16
    e = experts.exponent_of(net.shape, 7.0, 32)
    assert abs(experts.chance(net.shape, 32 ** e) - 7.0) < 1e-9
    spread = experts.spread_of(net.shape, 7.0, 9.0)
    assert [round(experts.blocks_hit(net.shape, 7.0, spread, n), 9) for n in (1, 2)] == [7, 9]


def test_an_exported_model_decodes_alike():
    prompts = [p for p, _ in encoded(problems(3))]
    for name in TOYS:
        net = a_model(name)
        with torch.no_grad():
            for p in list(net.w.values()) + list(net.buffers()):
                if p is not net.cos and p is not net.sin:
                    p.copy_(p.bfloat16())  # what the folder keeps
        with tempfile.TemporaryDirectory() as folder:
            export.write(net, folder, most_bytes=200_000)
            again = export.load(folder)
            assert all(torch.equal(p, again.w[k]) for k, p in net.w.items())
            assert [o.ids for o in decode.decode(net, prompts, 64)] == [o.ids for o in decode.decode(again, prompts, 64)]
            tk = data.load_tokenizer(folder)
            assert tk.token_to_id(data.MASK) == data.MASK_ID


def test_a_resumed_training_is_the_same_training():
    with tempfile.TemporaryDirectory() as folder:
        chunk_of(folder, encoded(problems(40)))
        for name in TOYS:
            straight, halted = (os.path.join(folder, name + n) for n in ("-a", "-b"))
            options = ("--steps", "6", "--rows", "2", "--log-every", "1")
            t = train.Trainer(arguments(name, folder, straight, *options))
            t.run()
            train.Trainer(arguments(name, folder, halted, *options, "--stop-after", "3")).run()
            u = train.Trainer(arguments(name, folder, halted, *options))
            u.resume()
            assert u.step == 3
            u.run()
            assert all(torch.equal(p, u.net.w[k]) for k, p in t.net.w.items()), name


def test_a_toy_learns_and_its_folder_decodes_alike():
    """Seconds of training: the loss falls, and what is exported decodes as what was trained."""
    import json
    pairs = encoded(problems(12))
    with tempfile.TemporaryDirectory() as folder:
        chunk_of(folder, pairs)
        for name in TOYS:
            work = os.path.join(folder, name)
            t = train.Trainer(arguments(name, folder, work, "--steps", "40", "--rows", "2", "--log-every", "8"))
            t.run()
            with open(os.path.join(work, "log.jsonl"), encoding="utf-8") as f:
                loss = [e["loss"] for e in map(json.loads, f) if "loss" in e]
            assert loss[-1] < 0.7 * loss[0], (name, loss)
            with torch.no_grad():
                for k, p in t.net.state_dict().items():
                    if k not in ("cos", "sin"):
                        p.copy_(p.bfloat16())
            again = export.load(os.path.join(work, "export"))
            prompts = [p for p, _ in pairs[:2]]
            assert ([o.ids for o in decode.decode(t.net, prompts, 64, 0.5)] ==
                    [o.ids for o in decode.decode(again, prompts, 64, 0.5)]), name


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("test_"):
            check()
            print("ok", name, flush=True)
