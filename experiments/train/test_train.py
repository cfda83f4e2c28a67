"""Checks that need no GPU, a minute in all: python3 test_train.py (or pytest test_train.py)."""

import os
import tempfile

import numpy as np
import torch

import data
import decode
import export
import model as models
import train

TOYS = ("llada-toy", "sdar-toy", "llada2-toy")
data.ROW = 320  # short rows for short texts
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
        for part, array in zip(("ids", "place", "kind"), data.pack([layout(p, o, r) for p, o in pairs], r)):
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
        ids, place, kind = data.pack(texts, Random(2))
        found = []
        for row in range(len(ids)):
            starts = [i for i in range(data.ROW) if place[row, i] == 0] + [data.ROW]
            for a, b in zip(starts, starts[1:]):
                if ids[row, a] != data.PAD_ID:
                    found.append((ids[row, a:b].tolist(), kind[row, a:b].tolist()))
                    assert place[row, a:b].tolist() == list(range(b - a))
        assert sorted(found) == sorted((list(i), list(k)) for i, k in texts)


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
    ids, place, kind = (torch.from_numpy(a.astype(np.int64)) for a in data.pack([data.canvas_row(p, o, Random(1))
                                                                                for p, o in pairs], Random(3)))
    text = train.text_numbers(place)
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
    pairs = encoded(problems(6))
    for name in TOYS:
        net = a_model(name)
        from random import Random
        if net.shape.is_block_causal:
            ids, place, _ = (torch.from_numpy(a.astype(np.int64)) for a in data.pack(
                [data.block_row(p, o, Random(1)) for p, o in pairs], Random(1)))
            row, text = ids[:1], train.text_numbers(place[:1])
            seen = row.clone()
            seen[:, ::3] = data.MASK_ID
            rule = models.sees_blocks(text, place[:1] // 32, data.ROW)
            mask = models.dense_mask(rule, 1, 2 * data.ROW, "cpu")
            with torch.no_grad():
                x = net.trunk(torch.cat((seen, row), 1), torch.cat((place[:1], place[:1]), 1), models.dense_attention(mask))
                packed = net.logits(x[0, :data.ROW])
            start = int((place[0] == 0).nonzero()[1])  # the second text, and its last block
            end = int((place[0] == 0).nonzero()[2])
            with torch.no_grad():
                b = decode.Blocks(net, [row[0, start:end - 32].tolist()], 32)
                b.ids[0, -32:] = seen[0, end - 32:end]
                alone = b.run(False)[0]
            assert torch.allclose(packed[end - 32:end], alone, atol=2e-4), (name, (packed[end - 32:end] - alone).abs().max())
        else:
            ids, place, _ = (torch.from_numpy(a.astype(np.int64)) for a in data.pack(
                [data.canvas_row(p, o, Random(1)) for p, o in pairs], Random(1)))
            mask = models.dense_mask(models.sees_canvas(train.text_numbers(place[:1])), 1, data.ROW, "cpu")
            start, end = (int(i) for i in (place[0] == 0).nonzero()[1:3, 0])
            with torch.no_grad():
                packed = net.logits(net.trunk(ids[:1], place[:1], models.dense_attention(mask))[0, start:end])
                n = end - start
                alone = net.logits(net.trunk(ids[:1, start:end], torch.arange(n)[None], models.dense_attention(
                    torch.ones(1, 1, n, n, dtype=torch.bool)))[0])
            assert torch.allclose(packed, alone, atol=2e-4)


def test_decoding_together_is_decoding_alone():
    prompts = [p for p, _ in encoded(problems(5))]
    for name in TOYS:
        net = a_model(name)
        for threshold in (None, 0.02):
            together = decode.decode(net, prompts, 70, threshold)
            alone = [decode.decode(net, [p], 70, threshold)[0] for p in prompts]
            assert [o.ids for o in together] == [o.ids for o in alone], name
            assert [o.passes for o in together] == [o.passes for o in alone]


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
