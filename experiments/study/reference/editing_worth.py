"""Where LLaDA2.0-mini's thresholds and LLaDA2.1-mini's modes stand at their printed tokens a pass, and which threshold is as
accurate as which mode: the settings of experiments/study/studies/questions/editing.ini.

Run from the repository root:  python3 experiments/study/reference/editing_worth.py [build/unmask]

Printed: means of 33 tasks, score and tokens a pass (model card of inclusionAI/LLaDA2.1-mini); LLaDA2.0-mini at thresholds
0.95 and 0.85 on a part of them (LLaDA2.0 report, figure 4). A threshold is as accurate as a mode where a straight line
through those two points has lost as much as the mode, against 0.95; its tokens a pass are on the exponential through the
two. A process of GSM-Plus is moved (confidence_drop) to each printed number, the pass that stores a block not counted, as in
`unmask fit edits`.
"""

import json
import subprocess
import sys

from mbd_table import bisect

REQUESTS = 60
SCORE, TPF = {"2.0": 63.39, "S": 62.07, "Q": 63.90}, {"2.0": 2.60, "S": 5.34, "Q": 3.12}
CURVE = {0.95: (70.15, 2.55), 0.85: (67.90, 3.31)}


def equal(lost):
    """The threshold that has lost `lost` points against 0.95, and its tokens a pass over those of 0.95."""
    (high, slow), (low, fast) = CURVE[0.95], CURVE[0.85]
    way = lost / (high - low)
    return 0.95 - 0.1 * way, (fast / slow) ** way


def tokens_a_pass(program, system, threshold, drop):
    words = [program, "run", "--json", "--gpu", "h100", "--system", system, "--model", "llada2-mini", "--workload", "gsm8k",
             "--requests", str(REQUESTS), "--rate", "0.01", "--set", f"confidence_drop={drop:.6f}", "--set", "early_stop=off",
             "--set", "confidence=llada2-mini/gsm-plus", "--set", f"decoder.threshold={threshold:.6f}"]
    run = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return run["tokens_committed"] / run["steps_by_phase"]["reuse"]


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/unmask"
    threshold, faster = equal(SCORE["2.0"] - SCORE["S"])
    rows = [("LLaDA2.0, threshold 0.95", "sglang", 0.95, TPF["2.0"]),
            (f"LLaDA2.0, threshold {threshold:.3f}", "sglang", threshold, TPF["2.0"] * faster),
            ("LLaDA2.1, S mode", "sglang-s", 0.5, TPF["S"]), ("LLaDA2.1, Q mode", "sglang-q", 0.7, TPF["Q"])]
    for name, system, at, printed in rows:
        drop = bisect(lambda d: tokens_a_pass(program, system, at, d) < printed, -20, 15)
        print(f"{name:26}{printed:6.2f} tokens a pass: confidence_drop = {drop:.2f}, {tokens_a_pass(program, system, at, drop):.2f}")


if __name__ == "__main__":
    main()
