"""What fp8.sh measured as one table: a line a run, each next to float32 by the same prompts.

    fp8_table.py FOLDER

`gained`, `lost`: prompts that one of the two alone answered rightly; `p`: McNemar's exact test of them.
"""
import glob
import json
import os
import re
import sys

from quality_table import mcnemar

FORMS = "f32 w8a8 w8a16 w8a8-channel head cache all all-channel".split()
RUN = re.compile(r"(?P<model>.+)-(?P<task>[a-z]+)-(?P<form>%s)\.json" % "|".join(FORMS))


def main():
    runs = {}
    for file in glob.glob(os.path.join(sys.argv[1], "*.json")):
        parts = RUN.fullmatch(os.path.basename(file))
        with open(file) as text:
            runs[parts["model"], parts["task"], FORMS.index(parts["form"])] = json.load(text)
    print("| model | task | in fp8 | right % | gained, lost | p | agree % | tokens a pass | weights KiB | rows KiB |")
    print("|---|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for (model, task, form), run in sorted(runs.items()):
        quality, base = run["quality"], runs[model, task, 0]["quality"]
        gained, lost, p = mcnemar(quality["marks"], base["marks"])
        paired = f"{gained}, {lost} | {p:.2f} | {100 * quality['agreement']:.1f}" if form else "| |"
        print(f"| {model} | {task} | {FORMS[form] if form else 'nothing'} | {100 * quality['accuracy']:.1f} | {paired} "
              f"| {run['tpf_answer']:.2f} | {run['weights_bytes'] / 1024:.0f} | {run['kv_peak_bytes'] / 1024:.0f} |")


if __name__ == "__main__":
    main()
