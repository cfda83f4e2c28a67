#!/usr/bin/env python3
"""What a step takes at the beginning of its hold, behind a rest of 0.24 s, over what it takes in a calibration's
rounds, behind another step and a rest as long as that one: of each calibration named, in per cent.

Usage: first.py calibrate-MODEL.json...
"""
import json
import sys


def main(paths):
    steps = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for step in json.load(file)["steps"]:
                if step.get("held"):
                    name = " + ".join(f"{side['kind']} {side['requests']}x{side['canvas_tokens']}" for side in step["sides"])
                    steps.setdefault(name, []).append(100 * (step["held"]["first_ns"] / step["device_ns"] - 1))
    for name, errors in steps.items():
        print(f"{name}: " + " ".join(f"{error:+.1f}" for error in errors))


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) > 1 else sys.exit(__doc__)
