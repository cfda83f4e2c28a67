#!/usr/bin/env python3
"""Refuses C and CUDA files of more than 900 lines, and functions of more than 60, those of tests aside.

    sizes.py          say what is too large; status 1 if anything is
    sizes.py --count  by folder: tracked files, their MB, lines of C and CUDA, and those without blank lines and comments
    sizes.py --self-test  judge texts whose sizes are known
"""
import collections
import os
import re
import subprocess
import sys

MOST_FILE, MOST_FUNCTION = 900, 60
# Kernels, whose parts would hand each other their registers, and a table with a case for each slot: lines that they have.
LISTED = {
    "engine/weights/layout.c:weight_part_shape": 84,
    "kernels/attention/dense_attention.cu:dense_attention_kernel": 128,
    "kernels/attention/few_attention.cu:few_attention_kernel": 96,
    "kernels/attention/importance.cu:importance_kernel": 140,
    "kernels/attention/line_attention.cuh:warps_merge": 66,
    "kernels/attention/line_attention.cuh:line_attention_kernel": 150,
    "kernels/attention/paged_attention_wgmma.cu:paged_attention_wgmma_kernel": 83,
    "kernels/attention/window_attention.cu:window_attention_kernel": 93,
    "kernels/decode/credit.cu:credit_kernel": 65,
    "kernels/decode/decode.cu:ranked_kernel": 65,
    "kernels/decode/head.cu:head_reduce_kernel": 65,
    "kernels/decode/head.cu:head_choose": 61,
    "kernels/decode/head_wgmma.cu:head_wgmma_kernel": 128,
    "kernels/decode/head_wgmma.cu:row_summary": 62,
    "kernels/decode/renoise.cu:renoise_kernel": 65,
    "kernels/decode/select.cu:score_kernel": 87,
    "kernels/elementwise/norm.cu:norm_kernel": 80,
    "kernels/elementwise/rope.cu:rope_kernel": 104,
    "kernels/linear/gate_up.cu:product_work": 66,
    "kernels/moe/moe_route.cu:route_token": 66,
    "kernels/moe/moe_route.cu:sort_kernel": 93,
}


def functions(text):
    """(name, first line from 1, lines) of what begins with a line without indent and ends with its brace."""
    lines = text.split("\n")
    first, is_open = None, False
    for i, line in enumerate(lines):
        if first is None and re.match(r"[A-Za-z_]", line):
            first, is_open = i, False
        if first is None:
            continue
        if line.startswith("}"):
            head = " ".join(lines[first:i]).split("{")[0]
            names = re.findall(r"(\w+) ?\(", re.sub(r"__launch_bounds__\([^)]*\)", "", head))
            if names and "=" not in head:
                yield names[0], first + 1, i - first + 1
            first = None
        elif not is_open and (line == "" or line.endswith((";", "}"))):
            first = None  # a declaration
        is_open = is_open or line.endswith("{")


def too_large(path, text):
    n = text.count("\n")
    if n > MOST_FILE:
        yield f"{path}: {n} lines, at most {MOST_FILE}"
    for name, line, n in functions("" if path.startswith("tests/") else text):
        most = LISTED.get(f"{path}:{name}", MOST_FUNCTION)
        if n > most:
            yield f"{path}:{line}: {name} has {n} lines, at most {most}"


def sources():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h", "*.cu", "*.cuh"],
                            capture_output=True, text=True, check=True).stdout.split()
    for path in listed:
        try:
            yield path, open(path, encoding="utf-8").read()
        except FileNotFoundError:  # removed, not yet committed
            pass


def count():
    all_lines, code, files, size = (collections.Counter() for _ in range(4))
    for path in subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True).stdout.split("\0")[:-1]:
        folder = path.split("/")[0] if "/" in path else "."
        files[folder] += 1
        size[folder] += os.lstat(path).st_size if os.path.lexists(path) else 0
    for path, text in sources():
        folder = path.split("/")[0]
        all_lines[folder] += text.count("\n")
        bare = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
        code[folder] += sum(1 for line in bare.split("\n") if line.strip())
    print(f"{'folder':12} {'files':>6} {'MB':>6} {'lines':>7} {'code':>7}")
    rows = [(folder, {folder}) for folder in sorted(files)]
    for name, folders in [*rows, ("but tests", files.keys() - {"tests"}), ("all", set(files))]:
        print(f"{name:12} {sum(files[f] for f in folders):6} {sum(size[f] for f in folders) / 1e6:6.1f} "
              f"{sum(all_lines[f] for f in folders):7} {sum(code[f] for f in folders):7}")
    return 0


def self_test():
    body = "".join(f"    int x{i} = {i};\n" for i in range(MOST_FUNCTION - 2))
    short, long = f"static int f(void) {{\n{body}}}\n", f"int\ng(int a,\n  int b) {{\n{body}\n}}\n"
    table = "static const struct row rows[] = {\n" + "    {f(1)},\n" * 100 + "};\n"
    cases = [(short, 0), (long, 1), (table, 0), (short + "\n" + long, 1), ("\n" * MOST_FILE, 0), ("\n" * (MOST_FILE + 1), 1),
             (table + "\n" + short.replace("}\n", "    f();\n}\n"), 1)]
    wrong = [i for i, (text, n) in enumerate(cases) if len(list(too_large("a.c", text))) != n]
    wrong += [i for i, (text, n) in enumerate(cases) if len(list(too_large("tests/a.c", text))) != (text.count("\n") > MOST_FILE)]
    print(f"{len(cases) - len(set(wrong))} of {len(cases)} cases are judged as they should be", *wrong)
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--count"]:
        return count()
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = [what for path, text in sources() for what in too_large(path, text)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
