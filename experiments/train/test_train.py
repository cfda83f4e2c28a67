"""Checks that need no GPU, a minute in all: python3 test_train.py (or pytest test_train.py)."""

import math
import os
import tempfile
from types import SimpleNamespace

import numpy as np
import torch

import aup
import data
import decode
import experts
import export
import fp8_table
import model as models
import train

TOYS = ("llada-toy", "sdar-toy", "llada2-toy", "llada2-block-toy")
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
    for name, layout in data.LAYOUTS.items():
        for part, array in zip(data.parts_of(name), data.pack([layout(p, o, r) for p, o in pairs], r)):
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
    masked, weight = train.mask_canvases(ids, kind, text, torch.Generator().manual_seed(1),
                                         SimpleNamespace(open=1, block_share=1.0))
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
        seen, place, ids, _, rule, _ = train.prepare(layout, rows, "cpu", torch.Generator().manual_seed(2),
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


def test_canvases_of_noise_see_the_text_before_them_as_it_is_read():
    from random import Random
    for prompt, output in encoded(problems(20)):
        ids, place, kind = data.noise_row(prompt, output, Random(3))
        kept = kind.count(0)
        assert len(ids) % 32 == 0 and kept % 32 == 0 and ids[:kept] == (prompt + output + [data.END_ID] * 64)[:kept]
        assert place[kept:] == list(range(len(prompt), len(prompt) + len(ids) - kept))
        assert ids[kept:][:len(output)] == output and kind[kept:] == [1 + i // 32 for i in range(len(ids) - kept)]


def test_a_block_in_disarray_is_told_what_to_do_with_each_place():
    """What is to stand there is the text's tokens in order, and what is to be deleted or moved is not masked."""
    from random import Random
    r, n_moved = Random(2), 0
    for prompt, output in encoded(problems(90)):
        tokens = output + [data.END_ID] * 64
        ids, targets = data.moved(tokens, 32, r)
        assert len(ids) == len(targets) == 32
        rest = iter(tokens)
        assert all(t in rest for t in targets if t not in (data.DELETE_ID, data.INSERT_ID))
        n_moved += data.INSERT_ID in targets and data.DELETE_ID in targets
        for i in range(1, 32):  # of equal neighbours the last one goes, and of ends of text none
            assert targets[i - 1] != data.DELETE_ID or ids[i - 1] != ids[i] or targets[i] != ids[i]
            assert targets[i] != data.DELETE_ID or (ids[i - 1], ids[i]) != (data.END_ID, data.END_ID)
    assert n_moved > 3
    for _ in range(300):  # of two at a block's end the one that goes would stand in the next block
        ids, targets = data.moved([7, 8] + [9] * 62, 32, r)
        assert ids[31] != 9 or targets[31] != data.DELETE_ID
    pairs = encoded(problems(40))
    rows = data.pack([data.indel_row(p, o, r) for p, o in pairs], r)
    seen, _, targets, weight, _, masked = train.prepare("indel", rows, "cpu", torch.Generator().manual_seed(2),
                                                        arguments("sdar-toy", "", tempfile.mkdtemp()))
    control = (targets == data.DELETE_ID) | (targets == data.INSERT_ID)
    assert control.any() and not (masked & control).any() and (weight[control] > 0).all() and (seen[masked] == data.MASK_ID).all()
    left, few = train.few_masks(torch.zeros((8, 512), dtype=torch.long), torch.Generator().manual_seed(1))
    assert 0.3 < few.float().mean() < 0.7 and left[~few].all() and left[few].float().mean() < 0.2


def test_a_second_block_sees_the_masked_one_before_it():
    """Two blocks at once: the second one's logits beside others are those of the two run together behind what is decided."""
    from random import Random
    pairs = [(p[:20], (o * 9)[:100] + [data.END_ID]) for p, o in encoded(problems(8))]
    net = a_model("sdar-toy")
    rows = [a[:1] for a in data.pack([data.block_row(p, o, Random(1)) for p, o in pairs], Random(1))]
    args = arguments("sdar-toy", "", tempfile.mkdtemp(), "--pairs", "1")
    seen, place, ids, _, rule, _ = train.prepare("block", rows, "cpu", torch.Generator().manual_seed(2), args)
    text, kind = (torch.from_numpy(a[0].astype(np.int64)) for a in (rows[3], rows[2]))
    with torch.no_grad():
        mask = models.dense_mask(rule, 1, data.ROW, "cpu")
        packed = net.logits(net.trunk(seen, place, models.dense_attention(mask)))[0]
    found = 0
    for number in range(1, int(text.max()) + 1):
        at = (text == number).nonzero().flatten()
        noisy, clean = at[kind[at] > 0], at[kind[at] == 0]
        for b in range(1, len(noisy) // 32):
            two = noisy[32 * (b - 1):32 * (b + 1)]
            if not mask[0, 0, two[-1], two[0]]:
                continue
            known = clean[place[0, clean] < place[0, two[0]]]
            alone = torch.cat((known, two))
            blocks = place[0, alone] // 32
            sees = blocks[:, None] >= blocks[None, :]
            with torch.no_grad():
                logits = net.logits(net.trunk(seen[:, alone], place[:, alone], models.dense_attention(sees[None, None])))[0]
            assert torch.allclose(packed[two[32:]], logits[-32:], atol=2e-4)
            found += 1
    assert found > 2


def test_a_canvas_of_noise_sees_all_of_itself_and_all_before_it():
    from random import Random
    pairs = encoded(problems(6))
    net = a_model("sdar-toy")
    rows = [a[:1] for a in data.pack([data.noise_row(p, o, Random(1)) for p, o in pairs], Random(1))]
    seen, place, ids, weight, rule, noisy = train.prepare("noise", rows, "cpu", torch.Generator().manual_seed(2),
                                                          arguments("sdar-toy", "", tempfile.mkdtemp()))
    assert ((seen != ids) <= noisy).all() and (seen != ids).any()
    with torch.no_grad():
        packed = net.logits(net.trunk(seen, place, models.dense_attention(models.dense_mask(rule, 1, data.ROW, "cpu"))))[0]
    text, kind = (torch.from_numpy(a[0].astype(np.int64)) for a in (rows[3], rows[2]))
    for number in range(1, int(text.max()) + 1):
        at = (text == number).nonzero().flatten()
        canvas = at[kind[at] == kind[at].max()]
        first = int(place[0, canvas[0]])
        known = at[(kind[at] == 0) & (place[0, at] < first)]
        alone = torch.cat((known, canvas))
        n = torch.arange(len(alone))
        sees = (n[:, None] >= n[None, :]) | (n[:, None] >= first)
        with torch.no_grad():
            logits = net.logits(net.trunk(seen[:, alone], place[:, alone], models.dense_attention(sees[None, None])))[0]
        assert torch.allclose(packed[canvas], logits[-32:], atol=2e-4)


def test_the_tokens_of_a_block_share_their_experts():
    shape = models.SHAPES["llada2-block-toy"]
    g = torch.Generator().manual_seed(4)
    x, router = torch.randn(64, shape.hidden, generator=g), torch.randn(shape.experts, shape.hidden, generator=g)
    bias = torch.randn(shape.experts, generator=g) * 0.1
    experts, _ = models.route(x, router, bias, shape)
    scores = torch.sigmoid(x @ router.T) + bias
    for block in (slice(0, 32), slice(32, 64)):
        best = scores[block].amax(0).topk(shape.block_experts).indices.tolist()
        assert set(experts[block].flatten().tolist()) <= set(best)
        for row, chosen in zip(scores[block], experts[block]):
            assert set(sorted(best, key=lambda e: -row[e])[:shape.experts_active]) == set(chosen.tolist())


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


def test_areas_have_intervals_that_hold_them():
    def run(tokens, right, judged=100):
        return dict(tokens_a_pass=tokens, right=right, judged=judged)
    runs = {("m", "t", "threshold", "0.95"): run(2.0, 90), ("m", "t", "threshold", "0.8"): run(3.0, 88),
            ("m", "t", "threshold", "0.5"): run(5.0, 84), ("m", "t", "multibd", "0.9"): run(4.0, 91)}
    found = aup.areas(aup.curves(runs))
    y, w = (90.0, 88.0, 91.0), [math.exp(-3 * (1 - v / 91)) for v in (90.0, 88.0, 91.0)]
    assert abs(found["m", "t", "threshold"] - (180 + (y[0] * w[0] + y[1] * w[1]) / 2)) < 1e-9
    assert abs(found["m", "t", "multibd"] - (180 + (y[0] * w[0] + y[2] * w[2]))) < 1e-9
    of = aup.intervals(runs, 400)
    for key, at in found.items():
        assert of[key][0] < at < of[key][1], key
    low, high = aup.intervals({("m", "t", "threshold", "0.95"): run(2.0, 90)}, 2000)["m", "t", "threshold"]
    assert 164 < low < 169 and 187 < high < 191  # two tokens a pass at 83 to 95 of 100
    whole = {key: dict(r, right=100) for key, r in runs.items()}
    for key, at in aup.areas(aup.curves(whole)).items():
        assert aup.intervals(whole, 100)[key][1] == at  # all right: no draw is above


def test_runs_in_fp8_are_told_apart_by_their_files():
    for model in ("sdar-2m", "sdar-2m-all", "a"):
        for form in fp8_table.FORMS:
            parts = fp8_table.RUN.fullmatch(f"{model}-hops-{form}.json")
            assert (parts["model"], parts["task"], parts["form"]) == (model, "hops", form)
    assert fp8_table.RUN.fullmatch("sdar-2m-hops-w4.json") is None


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
