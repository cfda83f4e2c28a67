"""Tokens a pass of the MBD-LMs project page, printed and predicted.

Run from the repository root:  python3 experiments/study/reference/mbd_table.py [build/unmask]

A decode process of each model's family is moved (confidence_drop) to where the page has the model with one block,
the pass that stores a block counted. MultiBD without training follows from that with no constant. How much surer
a model is after training for it, in logits, is one constant, fitted to LLaDA2-Mini; the other rows are predicted. The
last column says what constant a row of its own would need. Tokens a pass are counted as Diffulex counts them
(diffulex/utils/output.py): tokens written in decode steps over these steps, those that store a block among them.
"""

import json
import subprocess
import sys

REQUESTS = 60
# model of the page; its shape here, a process of its family, positions of a block, blocks, and what is printed:
# with one block, with MultiBD as it is, and after training
ROWS = [
    ("LLaDA2-Mini", "llada2-mini", "llada2-mini/gsm-plus", 32, 2, 3.47, 4.41, 6.19),
    ("LLaDA2-Mini-DMax", "llada2-mini", "llada2-mini/gsm-plus", 32, 2, 6.35, 9.31, 9.34),
    ("SDAR-8B-b32", "sdar-8b", "sdar-8b/mean-of-four", 32, 4, 2.54, 3.01, 4.46),
    ("SDAR-8B-b4", "sdar-8b", "sdar-8b/mean-of-four", 4, 4, 1.25, 2.00, 2.42),
    ("LLaDA2.1-Mini", "llada2-mini", "llada2-mini/gsm-plus", 32, 2, 4.50, None, 6.50),
]
FITTED = "LLaDA2-Mini"


def tokens_a_pass(program, row, drop, blocks):
    _, model, confidence, block = row[:4]
    one = blocks == 1
    settings = {"confidence": confidence, "confidence_drop": f"{drop:.6f}", "block_tokens": block,
                "blocks_in_flight": blocks, "static_blocks": "off" if one else "on",
                "cache.cross_block": "off" if one else "on", "cache.commit_last": "off", "early_stop": "off"}
    words = [program, "run", "--json", "--gpu", "h100", "--system", "multibd", "--model", model, "--workload", "gsm8k",
             "--requests", str(REQUESTS), "--rate", "1"]
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    run = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return run["tokens_committed"] / (run["request_steps"] - REQUESTS)  # each prompt is one more step


def bisect(rises, low, high):
    for _ in range(18):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    return (low + high) / 2


def off(value, printed):
    return "" if printed is None else f"{100 * (value / printed - 1):+.0f} %"


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/unmask"
    drops = {row[0]: bisect(lambda d, row=row: tokens_a_pass(program, row, d, 1) < row[5], -20, 15) for row in ROWS}
    fitted = next(row for row in ROWS if row[0] == FITTED)
    surer = bisect(lambda s: tokens_a_pass(program, fitted, drops[FITTED] - s, fitted[4]) > fitted[7], 0, 6)
    print(f"confidence_drop of {FITTED}: {drops[FITTED]:.2f}; trained for it, surer by {surer:.2f}")
    print(f"{'':18}{'one':>6}{'printed':>10}{'MultiBD':>10}{'off':>8}{'printed':>10}{'trained':>10}{'off':>8}{'needs':>8}")
    for row in ROWS:
        plain = tokens_a_pass(program, row, drops[row[0]], row[4])
        trained = tokens_a_pass(program, row, drops[row[0]] - surer, row[4])
        needs = bisect(lambda s, row=row: tokens_a_pass(program, row, drops[row[0]] - s, row[4]) > row[7], -3, 6)
        print(f"{row[0]:18}{row[5]:6.2f}{row[6] or '-':>10}{plain:10.2f}{off(plain, row[6]):>8}"
              f"{row[7]:10.2f}{trained:10.2f}{'fitted' if row[0] == FITTED else off(trained, row[7]):>8}{needs:8.2f}")


if __name__ == "__main__":
    main()
