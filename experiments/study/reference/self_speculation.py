"""Tokens that self-speculation decodes, written down anew from its specification (S2D2, arXiv 2603.25702;
phymhan/S2D2 SDAR/generate_ssd_policy.py at 279500a, where nothing is sampled, and drafts drawn at temperature 1).

Run from the repository root:  python3 experiments/study/reference/self_speculation.py

It decodes the prompts of tests/golden/engine/dllm-cache/prompts.jsonl with the checkpoint
experiments/train/models/sdar-2m in float32 on the CPU, under every setting below, and writes a line for each
setting to tests/golden/engine/self-speculation/tokens.jsonl: tokens and forward passes of each prompt, of those
how many checked drafts, how many drafts those accepted, and positions run. tests/live/test_live_speculation.c holds
the engine to tokens, passes and positions.

Nothing is cached: a pass runs all that stands before the block, and the block, under the block-causal mask. A
check runs the block with its drafts, which see what is before them, and as many masks, each of which sees what is
before the block, the drafts before it and itself. The pass that stores a block is counted and not run. Draws are
the engine's own (sim/base/rng.h, kernels/rules/keyed.h); drafts are drawn by whole numbers (kernels/rules/draw.h).

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64.
"""

import math

import numpy
import torch

from joint_threshold import decode_canvas, write_tokens
from renoise import GOLDEN, WORD, bits, key_of, mix, noise

TOKENS = "tests/golden/engine/self-speculation/tokens.jsonl"
SETTINGS = [
    dict(threshold=0.85, cost=1.0),  # SDAR with blocks of 4: the released numbers
    dict(threshold=0.85, cost=0.0),  # and of 16: every pass is checked
    dict(threshold=0.85, cost=0.0, seed=7),
    dict(threshold=0.7, cost=4.0),  # LLaDA2.1's
    dict(threshold=0.5, cost=0.5, when="dynamic"),
    dict(threshold=0.5, when="span", span=8),
    dict(threshold=0.85, cost=0.0, accept="same"),
    dict(threshold=0.6, cost=2.0, least=1.0, accept="same"),
    dict(threshold=0.85, cost=1.0, sampling="on"),
    dict(threshold=0.85, cost=0.0, sampling="on", seed=7),
    dict(threshold=0.5, cost=0.5, when="dynamic", sampling="on", seed=3),
    dict(threshold=0.9, cost=1.0, least=1.0, when="dynamic", hysteresis=6.0),  # Fast-dLLM v2's
    dict(threshold=0.85, cost=1.0, least=4.0, hysteresis=3.0, accept="same"),
    dict(threshold=0.85, when="bandit"),  # the released code's own numbers
    dict(threshold=0.85, when="bandit", sampling="on", seed=5),
    dict(threshold=0.5, when="bandit", explore=0.25, bins=4, accept="same"),
    dict(threshold=0.95, when="bandit", explore=0.0, bins=1),
]
FOR_ACCEPTING, FOR_TOKENS = range(2)
RUN_SEED, COLUMNS = 1, 512


def stream_of(seed, name):
    """The first number of a named stream (rng_stream)."""
    named = 0xCBF29CE484222325
    for letter in name.encode():
        named = (named ^ letter) * 0x100000001B3 & WORD
    return mix((mix(seed) ^ named) + GOLDEN & WORD)


def first_run(masked):
    at = masked.nonzero().flatten().tolist()
    run = at[:1]
    while len(run) < len(at) and at[len(run)] == run[-1] + 1:
        run.append(at[len(run)])
    return run


class Bandit:
    """Of one text (contextual_bandit_ucb): mean rewards of passes that are checked and of those that are not, in each of
    bins ** 3 cases."""

    def __init__(self):
        self.rewards, self.asked, self.arm = {}, 0, None

    def checks(self, p, run, length, filled, explore=1.0, bins=2):
        entropies = [-(p[at] * numpy.log(numpy.maximum(p[at], 1e-12))).sum() for at in run]
        shares = ((len(run) - 1) / max(length - 1, 1), filled / length, numpy.mean(entropies) / math.log(p.shape[-1]))
        case = tuple(min(int(share * bins), bins - 1) for share in shares)
        self.asked += 1
        worth = []
        for arm in ((case, False), (case, True)):
            got = self.rewards.get(arm, [])
            worth.append(sum(got) / len(got) + explore * math.sqrt(math.log(self.asked) / len(got)) if got else math.inf)
        self.arm = case, worth[1] >= worth[0]
        return self.arm[1]

    def learn(self, n):
        if self.arm is None:
            return
        self.rewards.setdefault(self.arm, []).append(n / (2 if self.arm[1] else 1))


def is_checked(p, confidence, masked, run, goes_on, threshold, cost=1.0, least=0.0, when="static", span=8, hysteresis=0.0,
               **others):
    """goes_on: the text's last drafts were checked."""
    if when == "span":
        return len(run) >= span
    stands = expected = 0.0
    for at in run:
        entropy = -(p[at] * numpy.log(numpy.maximum(p[at], 1e-12))).sum()
        stands = (1.0 if at == run[0] else stands) * math.exp(-entropy / math.log(p.shape[-1]))
        expected += stands
    n_sure = int((confidence > threshold)[masked.numpy()].sum())
    wins = expected - cost * (n_sure if when == "dynamic" else 1)
    return wins > least if hysteresis > 0 and not goes_on else wins >= least - hysteresis


def probabilities(logits):
    x = logits.double().numpy()
    p = numpy.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def drawn(logits, random):
    """A token of a row at temperature 1, and its share: where that of the whole falls which a random number means, in
    2^44 of the most likely token's and with tokens in the order 0, 512, ..., 1, 513, ..."""
    below = logits - logits.max()
    mass = numpy.floor(numpy.exp(below, where=below > -31, out=numpy.zeros_like(below)) * 2.0**44)
    mass = mass.astype(numpy.int64)
    order = numpy.argsort(numpy.arange(len(mass)) % COLUMNS, kind="stable")
    target = int(mass.sum()) * random >> 64
    token = int(order[numpy.searchsorted(numpy.cumsum(mass[order]), target, side="right")])
    return token, mass[token] / mass.sum()


def candidates(logits, sampling, number, first, n_committed):
    """A token of each row of a pass, the most likely or a drawn one, and its probability."""
    x = logits.numpy()
    if sampling == "off":
        p = probabilities(logits)
        return torch.tensor(p.argmax(-1)), p.max(-1)
    key = key_of(stream_of(RUN_SEED, "tokens"), number, n_committed)
    found = [drawn(row, bits(key, first + i)) for i, row in enumerate(x)]
    return torch.tensor([token for token, _ in found]), numpy.array([share for _, share in found])


def accepted(p, q, draft, setting, keys, position):
    """Of a draft of distribution p, by a check of distribution q: whether it is, and what is committed."""
    if setting.get("accept") == "same":
        return int(q.argmax()) == draft, int(q.argmax())
    u = ((bits(keys[FOR_ACCEPTING], position) >> 11) + 0.5) * 2.0**-53
    if u * p[draft] < q[draft]:
        return True, draft
    with numpy.errstate(divide="ignore"):
        above = numpy.log(numpy.maximum(q - p, 0))
    above = above if numpy.isfinite(above).any() else numpy.log(q)
    return False, int((above + noise(bits(keys[FOR_TOKENS], position), len(q))).argmax())


def check(model, before, x, drafts):
    """Distributions of the masks of a check."""
    n, first, mask = len(x), len(before), model.config.mask_token_id
    ids = torch.cat([before, drafts, torch.full_like(x, mask)])
    at = torch.arange(first + 2 * n)
    block = at // model.config.block_size
    sees = (block[:, None] >= block[None, :]) & (at[None, :] < first)
    own, drafted = at.clamp(max=first + n - 1) - first, at[first:first + n] - first
    own[first + n:] = drafted
    sees[first:first + n, first:first + n] = drafted[:, None] >= drafted[None, :]
    sees[first + n:, first:first + n] = drafted[:, None] > drafted[None, :]
    sees[first + n:, first + n:] = torch.eye(n, dtype=torch.bool)
    return probabilities(model.logits(ids, n, sees, torch.cat([at[:first + n], first + drafted])))


def decode_block(model, number, before, x, n_prompt, setting, of_text):
    """Fills the block x, in place; returns its passes, those of them that check, drafts accepted, and positions. of_text:
    what the text's blocks share: whether its last drafts were checked, and what was learned of that."""
    mask, first = model.config.mask_token_id, len(before)
    setting = dict(setting)
    sampling = setting.pop("sampling", "off")
    bandit, n_given, passes, checks, stood = of_text["bandit"], int((x != mask).sum()), 0, 0, 0
    while (x == mask).any():
        masked = x == mask
        logits = model.logits(torch.cat([before, x]), len(x))
        p = probabilities(logits)
        run = first_run(masked)
        n_committed = first + int((~masked).sum()) - n_prompt
        best, confidence = candidates(logits, sampling, number, first, n_committed)
        drafts = torch.where(masked, best, x)
        passes += 1
        if setting.get("when") == "bandit":
            numbers = {key: setting[key] for key in ("explore", "bins") if key in setting}
            of_text["checks"] = bandit.checks(p, run, len(x), int((~masked).sum()) - n_given, **numbers)
        else:
            of_text["checks"] = is_checked(p, confidence, masked, run, of_text["checks"], **setting)
        if not of_text["checks"]:
            sure = torch.where(masked, torch.tensor(confidence), torch.tensor(-1.0, dtype=torch.float64))
            fill = sure > setting["threshold"]
            if not fill.any():
                fill[sure.argmax()] = True
            x[fill] = drafts[fill]
            bandit.learn(int(fill.sum()))
            continue
        q = check(model, before, x, drafts)
        passes, checks = passes + 1, checks + 1
        pass_key = key_of(setting.get("seed", 1), number, first)
        keys = [key_of(pass_key, int((~masked).sum()), purpose) for purpose in (FOR_ACCEPTING, FOR_TOKENS)]
        for n, at in enumerate(run):
            stands, x[at] = accepted(p[at], q[at], int(drafts[at]), setting, keys, first + at)
            stood += stands
            if not stands:
                break
        bandit.learn(n + 1)
    return passes + 1, checks, stood, len(x) * (passes + 1 + checks)


def decode(model, prompt, number, setting):
    of_text = dict(checks=False, bandit=Bandit())
    return decode_canvas(model, prompt,
                         lambda before, x: decode_block(model, number, before, x, len(prompt), setting, of_text))


if __name__ == "__main__":
    write_tokens(TOKENS, SETTINGS, ("passes", "checks", "accepted", "run"), decode)
