"""Tokens that LLaDA2.2's insert and delete decode, written down anew from their specification
(inclusionAI/LLaDA2.X LLaDA2_2_tech_report.pdf, section 3.1; what SGLang's JointThresholdInDel does at 0fbe7e4).

Run from the repository root:  python3 experiments/study/reference/joint_indel.py

It decodes the prompts of tests/golden/engine/dllm-cache/prompts.jsonl with the checkpoint
experiments/train/models/sdar-2m in float32 on the CPU, under every setting below, and writes a line for each
setting to tests/golden/engine/joint-indel/tokens.jsonl: tokens, forward passes, tokens replaced in place, and how
many positions were dropped and inserted. tests/live/test_live_moving.c holds the engine to the first three. The last
settings are of sdar-2m-indel, which is trained to insert and delete. The other
model was not: ordinary tokens that it writes often stand for the two here, so
that the canvas moves in nearly every block, and what it says is of no use but to compare with. Passes over nonsense
meet near ties: with insert=17 in the first setting two logits of a pass differ by 1e-6, and one prompt of the ten
went another way on the engine.

Nothing is cached: a pass runs all that stands before the block, and the block, under the block-causal mask. A pass
more for each block, which stores it as the pass before has left it, is counted and not run: SGLang spares that.

Made with PyTorch 1.13.0 (Debian 12, python3-torch) on x86-64.
"""


import numpy
import torch

from joint_threshold import decode_canvas, write_tokens
from self_speculation import probabilities

TOKENS = "tests/golden/engine/joint-indel/tokens.jsonl"
TRAINED = "experiments/train/models/sdar-2m-indel"
SETTINGS = [
    dict(threshold=0.5, edit_threshold=0.0, delete=450, insert=19),  # SGLang's numbers
    dict(threshold=0.7, edit_threshold=0.5, delete=220, insert=1229),
    dict(threshold=0.1, edit_threshold=0.0, delete=15, insert=220),
    dict(threshold=0.1, edit_threshold=0.0, delete=2045, insert=341),  # the end of text is dropped
    dict(threshold=0.5, edit_threshold=0.0, max_post_edit_steps=2, delete=341, insert=15),
    dict(threshold=0.5, edit_threshold=0.0, max_post_edit_steps=0, delete=450, insert=220),
    dict(threshold=0.5, edit_threshold=0.0, delete=2044, insert=2043),  # tokens that are never written
    dict(model=TRAINED, threshold=0.5, edit_threshold=0.0),  # whose config.json names the two tokens
    dict(model=TRAINED, threshold=0.7, edit_threshold=0.5),
    dict(model=TRAINED, threshold=0.1, edit_threshold=0.0),  # most tokens are filled too soon
]


class Block:
    def __init__(self, model, x, setting, fixed=None):
        """fixed: the number of its first positions that are given; None: all but the masks."""
        self.mask, self.setting = model.config.mask_token_id, setting
        self.delete = setting.get("delete") or model.config.delete_token_id
        self.insert = setting.get("insert") or model.config.split_token_id
        self.post_limit = setting.get("max_post_edit_steps", 16)
        self.fixed = int((x != self.mask).sum()) if fixed is None else fixed
        self.original = (x == self.mask).tolist()
        self.post = self.updates = self.replaced = self.dropped = self.inserted = 0
        self.contents, self.tried = set(), {}

    def best(self, logits, without):
        row = logits.copy()
        row[list(without)] = -numpy.inf
        return int(row.argmax())

    def chosen(self, masked, p, last):
        """Masked positions that are filled."""
        at = [i for i, is_masked in enumerate(masked) if is_masked]
        n_original = sum(self.original[i] for i in at)
        if last or n_original == 0:
            return set(at)
        need = 1 + len(at) - n_original
        sure = {i for i in at if p[i] > self.setting["threshold"]}
        return sure if len(sure) >= need else set(sorted(at, key=lambda i: -p[i])[:need])

    def update(self, x, logits):
        """The tokens after a pass; None where it writes nothing."""
        n, mask, s = len(x), self.mask, self.setting
        rows = logits.numpy()
        all_p = probabilities(logits).astype(numpy.float32)
        masked = [i >= self.fixed and x[i] == mask for i in range(n)]
        originals = {i for i in range(n) if masked[i] and self.original[i]}
        self.updates += 1
        self.post += not originals
        last = (self.post_limit > 0 and self.post >= self.post_limit or self.post_limit == 0 and not originals
                or self.updates > n + self.post_limit)
        v = rows.argmax(-1).tolist()
        for i in originals:
            if v[i] == mask and not last:
                v[i] = self.best(rows[i], [mask])
        p = [all_p[i][v[i]] for i in range(n)]
        writes = self.chosen(masked, p, last)
        if self.post_limit == 0 and originals and originals <= writes:
            last, writes = True, {i for i in range(n) if masked[i]}
        writes |= {i for i in range(self.fixed, n) if not masked[i] and p[i] > s["edit_threshold"] and v[i] != x[i]}
        if not writes:
            return None, True
        control = [mask, self.delete, self.insert]
        if last:
            for i in writes:
                v[i] = self.best(rows[i], control) if v[i] in control else v[i]
        elif tuple(x) in self.contents:
            changing = sorted(i for i in writes if v[i] != x[i])
            if changing:
                i = min(changing, key=lambda i: p[i])
                v[i] = self.best(rows[i], self.tried.get(i, set()) | ({mask} if i in originals else set()))
        self.contents.add(tuple(x))
        for i in writes:
            self.tried.setdefault(i, set()).add(v[i])
        return self.applied(x, v, writes), last

    def applied(self, x, v, writes):
        out, original = x[:self.fixed], self.original[:self.fixed]
        for i in range(self.fixed, len(x)):
            token = v[i] if i in writes else None
            if token == self.delete:
                self.dropped += 1
                continue
            if token == self.insert:
                self.inserted += 1
                out, original = out + [self.mask], original + [False]
                token = None
            out, original = out + [x[i] if token is None else token], original + [self.original[i]]
        short = max(len(x) - len(out), 0)
        self.original = (original + [False] * short)[:len(x)]
        out = (out + [self.mask] * short)[:len(x)]
        self.replaced += sum(a != b and self.mask not in (a, b) for a, b in zip(x, out))
        return out


def decode_block(model, before, x, setting, fixed=None):
    """Fills the block x, in place; returns passes, replaced tokens, and positions dropped and inserted."""
    block = Block(model, x, setting, fixed)
    passes, over, changed = 0, False, False
    while not over:
        out, over = block.update(x.tolist(), model.logits(torch.cat([before, x]), len(x)))
        passes += 1
        changed = out is not None and out != x.tolist()
        if out is not None:
            x[:] = torch.tensor(out)
    return passes + changed + 1, block.replaced, block.dropped, block.inserted


def decode(model, prompt, number, setting):
    return decode_canvas(model, prompt, lambda before, x: decode_block(model, before, x, setting))


if __name__ == "__main__":
    write_tokens(TOKENS, SETTINGS, ("passes", "replaced", "dropped", "inserted"), decode)
