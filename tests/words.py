#!/usr/bin/env python3
"""Comments and printed strings do without the words of tests/words.txt.

    python3 tests/words.py [FILE or FOLDER...]

Default: what is compiled into the product. Prints FILE:LINE, the word and what to write instead;
the status is 1 if there is any. Names are not prose: a string of one word, a word between backticks.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = ("sim", "engine", "kernels", "traces", "experiments", "analysis")
SUFFIXES = (".c", ".h", ".def", ".cu", ".cuh")
# A comment, a string, or a character literal, which may be a quote.
TEXT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
# A name: a key, an identifier.
NAME = re.compile(r'"[\w.-]+"|`[\w.-]+`')
# Between the words of a phrase that goes on in the next line.
GAP = r'[\s*"]+'


def rules():
    with open(os.path.join(HERE, "words.txt"), encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines if line.strip() and line[0] != "#"]
    return [(re.compile(rf"\b(?:{word.replace(' ', GAP)})\b", re.I), instead) for word, instead in rows]


def read_text(path):
    """The file with spaces in place of all that is neither comment nor string."""
    with open(path, encoding="utf-8") as file:
        source = file.read()
    kept, end = [], 0
    for match in TEXT.finditer(source):
        prose = NAME.sub(lambda name: " " * len(name.group()), match.group())
        kept += [re.sub(r"[^\n]", " ", source[end:match.start()]), prose]
        end = match.end()
    return "".join(kept)


def sources(places):
    for place in places:
        if os.path.isfile(place):
            yield place
        for folder, _, files in os.walk(place):
            yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(SUFFIXES))


def main():
    refused, n = rules(), 0
    for path in sources(sys.argv[1:] or FOLDERS):
        text = read_text(path)
        for word, instead in refused:
            for match in word.finditer(text):
                print(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: '{match.group()}': write {instead}")
                n += 1
    if n:
        sys.exit(f"words: {n} that tests/words.txt refuses")


if __name__ == "__main__":
    main()
