"""Golden files of the tokenizer, by Hugging Face's own `tokenizers` (pip install tokenizers).

  make_tokenizers.py build FOLDER              the small tokenizers of the formats that are supported, into FOLDER/*.json
  make_tokenizers.py golden TOKENIZER OUT N    N texts with their ids and N lists of ids with their text, as JSON lines

The tests read NAME.json with NAME.jsonl of tests/golden/tokenizers.tar.gz (tar cz --format=ustar). Tokenizers
that may not be shipped are tested by
TOKENIZER=FILE.json GOLDEN=FILE.jsonl build/tests/engine/test_tokenizer.
"""

import glob
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
LING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mdm_mask|>"]
FIXED = [
    "", " ", "  ", "\n", "\r\n", "\t\t x", "a", "Hello, world!", "I'm you'Re WE'LL it'ſ don't'D", "x\u200by", "12345 6 789",
    "1 234,567.89 \u0663\u0664\u0665 \u2167 \u00bd \u00b2", "e\u0301 \u00e9 \u1e69 s\u0323\u0307 \u212b \uac00 \u1100\u1161",
    "\u00a0\u2003\u3000\u180e\u0085\u2028x\u2029 y", "a  b   c    d \n\n\n e\n \n  f", "\U0001f600\U0001f468\u200d\U0001f469",
    "日本語のテキスト、中文文本。", "<|endoftext|>", "a<|endoftext|> b <|im_start|>user\nhi<|im_end|>\n", "<|im_start|", "<|endof",
    " <|mdm_mask|>  <|mdm_mask|> x", "  <left>  <left> \n<right>  \n\t x <both>\u3000<both> y", "e\u0301<né>e\u0301 <ne\u0301>",
    "#### 42", "Q: What is 12 * 34?\nA:\n", "tabs\tand\x0bvt\x0cff", "'s 'S 'T \u212aelvin", "\ufeffbom", "\ufffd \U0010ffff",
    "def f(x):\n    return x  # ok\n", "…—–“quoted”", "x" * 300, " " * 200 + "x", "ab" * 150, "\n" * 50,
]
POOLS = ["abcdefghij XYZ", " \t\n\r\u00a0\u2003\u3000\u0085\u2028", "0123456789\u0660\u0661\u00b2\u2167", "'sStTreVEmMllDd\u017f",
         "éèüñøß\u0301\u0323\u0307\u030a", "日本語中文한국어กขค", "\U0001f600\U0001f680\u200d\ufe0f", ".,;:!?#$%&*()-_=+[]{}<>|/\\\"",
         "АБВгдеΑΒγδ\u05d0\u05d1\u0627\u0644"]


def text(r):
    kind = r.random()
    if kind < 0.15:  # any characters
        return "".join(chr(c) for c in (r.randrange(1, 0x110000) for _ in range(r.randrange(40))) if not 0xd800 <= c < 0xe000)
    out = ""
    for _ in range(r.randrange(1, 14)):
        pool = r.choice(POOLS)
        out += "".join(r.choice(pool) for _ in range(r.randrange(1, 8)))
        if r.random() < 0.08:
            out += r.choice(SPECIAL + ["<left>", "<right>", "<both>", "<né>"])
    return out


def golden(path, out, n):
    t, r = Tokenizer.from_file(path), random.Random(16)
    with open(out, "w", encoding="ascii") as f:
        for s in FIXED + [text(r) for _ in range(n)]:
            if "\0" not in s:
                f.write(json.dumps({"text": s, "ids": t.encode(s, add_special_tokens=False).ids}) + "\n")
        for _ in range(n):
            ids = [i for i in (r.randrange(t.get_vocab_size()) for _ in range(r.randrange(1, 20))) if t.id_to_token(i)]
            s = t.decode(ids, skip_special_tokens=True)
            if "\0" not in s:
                f.write(json.dumps({"decode": ids, "text": s}) + "\n")


def corpus():
    here = os.path.dirname(os.path.abspath(__file__))
    for path in sorted(glob.glob(os.path.join(here, "../../../experiments/train/prompts/*.jsonl"))):
        with open(path, encoding="utf-8") as f:
            for line in f:
                yield json.loads(line)["prompt"]


def small(normalizer, pre, vocab):
    t = Tokenizer(models.BPE())
    if normalizer is not None:
        t.normalizer = normalizer
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=vocab, show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(SPECIAL)
    t.add_tokens([AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False),
                  AddedToken("<both>", lstrip=True, rstrip=True, normalized=True), AddedToken("<né>", normalized=True)])
    return t


def split(regex):
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), level])


def build(folder):
    """Qwen's with NFC; Llama 3's with whole words first, a beginning and merges as strings; Ling's; GPT-2's behind digits."""
    made = {"qwen2": small(normalizers.NFC(), split(QWEN2), 600), "llama3": small(None, split(LLAMA3), 600),
            "ling": small(normalizers.Sequence([normalizers.NFC()]), split(LING), 500)}
    gpt2 = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made["digits"] = small(None, gpt2, 500)
    made["llama3"].post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[
            ("<|im_start|>", made["llama3"].token_to_id("<|im_start|>"))])])
    for name, t in made.items():
        as_json = json.loads(t.to_str())
        as_json["model"]["ignore_merges"] = name == "llama3"
        if name == "llama3":
            as_json["model"]["merges"] = [" ".join(m) for m in as_json["model"]["merges"]]
            del as_json["model"]["merges"][40:60]  # so that some words are tokens which merges do not make
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(as_json, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["build"] and len(sys.argv) == 3:
        build(sys.argv[2])
    elif sys.argv[1:2] == ["golden"] and len(sys.argv) == 5:
        golden(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        raise SystemExit(__doc__)
