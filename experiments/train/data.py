"""Texts for training and for tests.

  data.py tokenizer [--gsm8k FOLDER]       the tokenizer in models/sdar-2m, out of a sample of the training texts
  data.py prompts [--gsm8k FOLDER]         prompts/*.jsonl: held-out problems with answers
  data.py chunks OUT --count N [...]       packed rows of tokens, which train.py reads while they are still being made
  data.py check                            lossless round trip; no held-out question in a training text

A chunk is made from its number alone, so the same command makes the same rows anywhere.
"""

import argparse
import glob
import json
import multiprocessing
import os
import time
from random import Random

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np  # noqa: E402

import tasks  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZER = os.path.join(HERE, "models", "sdar-2m")  # that every model of this folder shares
VOCAB = 2048
END, PAD, MASK = "<|endoftext|>", "<|pad|>", "<|mask|>"
END_ID, PAD_ID, MASK_ID = VOCAB - 3, VOCAB - 2, VOCAB - 1
DELETE_ID, INSERT_ID = 186, 187  # the bytes fe and ff, which no UTF-8 text has, drop a position and put a mask before it
# Qwen's split: contractions, words with what stands before them, single digits, punctuation, line ends, blanks.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
BLOCK = 32
ROW = 2048  # tokens of a packed row
MOST_PROMPT, MOST_OUTPUT = 700, 288
PROBLEMS_PER_CHUNK = 4096
# Shares of the training texts, for models of some 30 M parameters and for those of 2 M.
MIXES = {"large": {"gsm": 0.55, "shots": 0.04, "pick": 0.08, "multiply": 0.06, "add": 0.05, "drill": 0.11, "lookup": 0.05,
                   "hops": 0.03, "gsm8k": 0.03},
         "small": {"easy": 0.5, "easy_drill": 0.14, "lookup": 0.18, "hops": 0.18}}
TESTS = {"gsm": 512, "pick": 192, "shots": 128, "multiply": 192, "add": 96, "lookup": 128, "hops": 128, "easy": 256}


def load_tokenizer(folder=TOKENIZER):
    from tokenizers import Tokenizer
    return Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))


class Source:
    """Problems by task; gsm8k only where its texts are at hand."""

    def __init__(self, gsm8k=None, mix="large"):
        self.gsm = tasks.Gsm()
        self.real = tasks.read_gsm8k(gsm8k, "train") if gsm8k else []
        self.mix = {k: v for k, v in MIXES[mix].items() if k != "gsm8k" or self.real}

    def draw(self, r, task=None, held_out=False):
        task = task or r.choices(list(self.mix), list(self.mix.values()))[0]
        if task == "gsm8k":
            return r.choice(self.real)
        if task in tasks.GENERATED:
            return tasks.generated(task, r, held_out)
        return getattr(self.gsm, task)(r, held_out)


# ---- tokenizer ----

CHAT_TEMPLATE = ("{% for message in messages %}{% if message['role'] == 'user' %}{{ 'Q: ' + message['content'] + '\nA:\n' }}"
                 "{% else %}{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}")


def build_tokenizer(folder, gsm8k):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    source, r = Source(gsm8k), Random(1)
    texts = []
    for _ in range(60000):
        p = source.draw(r)
        texts.append(p.prompt + p.solution)
    tk = Tokenizer(models.BPE())
    tk.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tk.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tk.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tk.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB - 3, special_tokens=[], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tk.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in (END, PAD, MASK)])
    assert [tk.token_to_id(t) for t in (END, PAD, MASK)] == [END_ID, PAD_ID, MASK_ID] and tk.get_vocab_size() == VOCAB
    os.makedirs(folder, exist_ok=True)
    tk.save(os.path.join(folder, "tokenizer.json"))
    special = {str(i): dict(content=t, lstrip=False, normalized=False, rstrip=False, single_word=False, special=True)
               for i, t in ((END_ID, END), (PAD_ID, PAD), (MASK_ID, MASK))}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(dict(add_bos_token=False, add_prefix_space=False, added_tokens_decoder=special, bos_token=None,
                       chat_template=CHAT_TEMPLATE, clean_up_tokenization_spaces=False, eos_token=END,
                       mask_token=MASK, model_max_length=2048, pad_token=PAD,
                       tokenizer_class="PreTrainedTokenizerFast", unk_token=None), f, indent=2)
        f.write("\n")


# ---- packed rows ----

def block_row(prompt, output, r):
    """For block-causal training: the text as decoding keeps it (kind 0), without its last block, which nothing looks back on;
    behind it, from the block in which the output begins, the copy that is masked (kind 1 the output, 2 what of the prompt is
    in that block). Ends of text to the end of the block, now and then one block more. Returns ids, places, kinds."""
    ids = prompt + output
    n = -(-len(ids) // BLOCK) * BLOCK + (BLOCK if r.random() < 0.1 else 0)
    ids += [END_ID] * (n - len(ids))
    first = len(prompt) // BLOCK * BLOCK
    return (ids[:n - BLOCK] + ids[first:], [*range(n - BLOCK), *range(first, n)],
            [0] * (n - BLOCK) + [2] * (len(prompt) - first) + [1] * (n - len(prompt)))


def canvas_row(prompt, output, r):
    """For bidirectional training: a canvas of some length, ends of text behind the solution. Kinds count blocks from the
    prompt's end; 0 is the prompt. Returns ids, places, kinds."""
    least = -(-len(output) // BLOCK) * BLOCK
    n = least + BLOCK * r.choice((0, 0, 0, 0, 1, 2)) if r.random() < 0.9 else max(least, 256)
    n += -(len(prompt) + n) % BLOCK
    ids = prompt + output + [END_ID] * (n - len(output))
    return ids, [*range(len(ids))], [0] * len(prompt) + [1 + i // BLOCK for i in range(n)]


def noise_row(prompt, output, r):
    """For canvases of BLOCK that begin at the prompt's end: the text as decoding keeps it, without its last canvas (kind 0),
    and after it the canvases, whose kinds count them from 1. Between the two, what fills a block. Returns ids, places, kinds."""
    n = -(-len(output) // BLOCK) * BLOCK + (BLOCK if r.random() < 0.1 else 0)
    ids = prompt + output + [END_ID] * (n - len(output))
    kept = -(-(len(ids) - BLOCK) // BLOCK) * BLOCK
    return (ids[:kept] + ids[len(prompt):], [*range(kept), *range(len(prompt), len(ids))],
            [0] * kept + [1 + i // BLOCK for i in range(n)])


def moved(tokens, n, r):
    """n places of a block's output as insertion and deletion may meet it, and what to make of each: now and then a token is
    left out, and what follows it asks for a mask before it; or one stands there that is none of the text's, to be deleted;
    or another in its stead. Of equal neighbours the last one is missing or goes, so that the answer is one. tokens: of the
    block and what follows."""
    left_out, added, wrong = (r.random() * most if r.random() < 0.6 else 0 for most in (0.08, 0.08, 0.15))
    ids, targets, is_missing, is_owed = [], [], False, False
    for i, token in enumerate(tokens):
        if len(ids) >= n:
            break
        is_owed = r.random() < left_out and token != END_ID or is_owed
        if is_owed and tokens[i + 1:i + 2] != [token]:
            is_missing, is_owed = True, False
            continue
        if r.random() < added:
            extra = r.choice(tokens) if r.random() < 0.5 else r.randrange(END_ID)
            if token != END_ID or extra != END_ID and targets[-1:] != [END_ID]:  # after the end none is too many
                ids.append(extra)
                targets.append(DELETE_ID)
        ids.append(r.randrange(END_ID) if r.random() < wrong else token)
        targets.append(INSERT_ID if is_missing else token)
        is_missing = False
    for at in range(len(ids) - 1):
        if targets[at] == DELETE_ID and ids[at] == ids[at + 1] == targets[at + 1]:
            targets[at], targets[at + 1] = ids[at], DELETE_ID
    next_one = tokens[i - 1] if len(ids) > n else token
    ids, targets = ids[:n], targets[:n]
    if targets[-1] == DELETE_ID and ids[-1] == next_one:  # of the two the one in the next block goes
        targets[-1] = next_one
    return ids, targets


def indel_row(prompt, output, r):
    """As block_row, but with the blocks of the copy in disarray, and a fourth list: what each place is to become."""
    ids, place, kind = block_row(prompt, output, r)
    n, targets = len(place) - kind[::-1].index(0) if 0 in kind else 0, ids[:]
    stream = output + [END_ID] * 4 * BLOCK
    for first in range(n, len(ids), BLOCK):
        given = kind[first:first + BLOCK].count(2)
        at = place[first] + given - len(prompt)
        seen, wanted = moved(stream[at:at + 2 * BLOCK], BLOCK - given, r)
        seen = [MASK_ID if t == DELETE_ID and r.random() < 0.2 else i for i, t in zip(seen, wanted)]  # one too many was inserted
        ids[first + given:first + BLOCK], targets[first + given:first + BLOCK] = seen, wanted
    return ids, place, kind, targets


LAYOUTS = {"block": block_row, "canvas": canvas_row, "noise": noise_row, "indel": indel_row}
PARTS = ("ids", "place", "kind", "text")


def parts_of(layout):
    return PARTS[:3] + ("target",) + PARTS[3:] if layout == "indel" else PARTS


def pack(texts, r):
    """Rows of ROW tokens, each text whole, the longest first into the fullest row that has room. An array for each list of a
    text (ids, place in the text, kind), and the number of the text in its row; what no text fills is padding, text 0."""
    rows, by_room = [], {}
    for text in sorted(texts, key=lambda t: -len(t[0])):
        for room in range(len(text[0]), ROW + 1, BLOCK):
            if by_room.get(room):
                row = by_room[room].pop()
                break
        else:
            row, room = [], ROW
            rows.append(row)
        row.append(text)
        if room > len(text[0]):
            by_room.setdefault(room - len(text[0]), []).append(row)
    r.shuffle(rows)
    types = (np.uint16, np.uint16, np.uint8, np.uint16)[:len(texts[0])] + (np.uint8,)
    out = [np.full((len(rows), ROW), PAD_ID if i == 0 else 0, of) for i, of in enumerate(types)]
    for i, row in enumerate(rows):
        r.shuffle(row)
        at = 0
        for number, text in enumerate(row):
            end = at + len(text[0])
            for array, part in zip(out, (*text, number + 1)):
                array[i, at:end] = part
            at = end
    return out


def chunk_path(folder, number):
    return os.path.join(folder, f"chunk-{number:05}.npz")


_made = {}


def make_chunk(job):
    folder, number, gsm8k, seed, mix, layouts = job
    path = chunk_path(folder, number)
    if os.path.exists(path):
        return 0
    if "source" not in _made:
        _made.update(source=Source(gsm8k, mix), tokenizer=load_tokenizer())
    source, tk, r = _made["source"], _made["tokenizer"], Random(f"{seed}/{number}")
    problems = [source.draw(r) for _ in range(PROBLEMS_PER_CHUNK)]
    texts = tk.encode_batch_fast([t for p in problems for t in (p.prompt, p.solution)])
    pairs = [(texts[i].ids, texts[i + 1].ids + [END_ID]) for i in range(0, len(texts), 2)]
    pairs = [(p, o) for p, o in pairs if len(p) <= MOST_PROMPT and len(o) <= MOST_OUTPUT]
    arrays = {}
    for name in layouts:
        for part, array in zip(parts_of(name), pack([LAYOUTS[name](p, o, r) for p, o in pairs], r)):
            arrays[f"{name}_{part}"] = array
    with open(path + ".part", "wb") as f:
        np.savez(f, **arrays)
    os.rename(path + ".part", path)
    return len(pairs)


def make_chunks(folder, count, processes, gsm8k, seed, mix, layouts):
    os.makedirs(folder, exist_ok=True)
    began, n = time.time(), 0
    with multiprocessing.Pool(processes) as pool:
        for i, made in enumerate(pool.imap(make_chunk, [(folder, k, gsm8k, seed, mix, layouts) for k in range(count)])):
            n += made
            if i + 1 == count or (i + 1) % 100 == 0:
                print(json.dumps(dict(chunks=i + 1, problems=n, seconds=round(time.time() - began, 1))), flush=True)


# ---- tests ----

def write_prompts(folder, gsm8k):
    os.makedirs(folder, exist_ok=True)
    source, tk, r = Source(None), load_tokenizer(), Random(2026)

    def write(path, problems):
        with open(path, "w", encoding="utf-8") as f:
            for i, p in enumerate(problems):
                f.write(json.dumps(dict(id=f"{p.task}-{i}", task=p.task, prompt=p.prompt, answer=p.answer),
                                   ensure_ascii=False) + "\n")

    def fits(p):
        return len(tk.encode(p.prompt).ids) <= MOST_PROMPT and len(tk.encode(p.solution).ids) < 256
    for task, n in TESTS.items():
        seen, problems = set(), []
        while len(problems) < n:
            p = source.draw(r, task, held_out=True)
            if p.prompt not in seen and fits(p):
                assert tasks.is_right(p.solution, p.answer), p
                seen.add(p.prompt)
                problems.append(p)
        write(os.path.join(folder, task + ".jsonl"), problems)
    if gsm8k:
        write(os.path.join(folder, "gsm8k.jsonl"), [p for p in tasks.read_gsm8k(gsm8k, "test") if fits(p)])


def read_prompts(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def check(gsm8k):
    source, small, tk, r = Source(gsm8k), Source(None, "small"), load_tokenizer(), Random(5)
    held = {p["prompt"] for path in glob.glob(os.path.join(HERE, "prompts", "*.jsonl")) for p in read_prompts(path)}
    odd = ["", " ", "a  b\n\n\n c\t", "naïve café 12345 €3.50 – “so”", "日本語 🙂", "\r\nx'll DON'T", "e\u0301"]
    lengths = {}
    for text in odd:
        assert tk.decode(tk.encode(text).ids) == text, text
    for i in range(20000):
        p = (source if i % 2 else small).draw(r)
        assert not any(q in held for q in ("Q: " + part for part in p.prompt.split("Q: ")[1:])), p.prompt
        for text in (p.prompt, p.solution):
            assert tk.decode(tk.encode(text).ids) == text, text
        lengths.setdefault(p.task, []).append((len(tk.encode(p.prompt).ids), len(tk.encode(p.solution).ids)))
    for task, pairs in sorted(lengths.items()):
        a = np.array(pairs)
        print(f"{task:9} {len(a):6} problems  prompt {a[:, 0].mean():6.1f} (most {a[:, 0].max()})  "
              f"solution {a[:, 1].mean():6.1f} (most {a[:, 1].max()}) tokens")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("what", choices=("tokenizer", "prompts", "chunks", "check"))
    ap.add_argument("out", nargs="?", help="a folder; default: tokenizer or prompts beside this file")
    ap.add_argument("--gsm8k", help="a checkout of openai/grade-school-math; default: none of its texts")
    ap.add_argument("--count", type=int, default=64, help=f"chunks of {PROBLEMS_PER_CHUNK} problems; default: 64")
    ap.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    ap.add_argument("--mix", choices=tuple(MIXES), default="large", help="of the texts; default: large")
    ap.add_argument("--layouts", default="block,canvas", help=f"of {', '.join(LAYOUTS)}; default: block,canvas")
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    if args.what == "tokenizer":
        build_tokenizer(args.out or TOKENIZER, args.gsm8k)
    elif args.what == "prompts":
        write_prompts(args.out or os.path.join(HERE, "prompts"), args.gsm8k)
    elif args.what == "chunks":
        make_chunks(args.out, args.count, args.processes, args.gsm8k, args.seed, args.mix,
                    args.layouts.split(","))
    else:
        check(args.gsm8k)


if __name__ == "__main__":
    main()
