#!/bin/bash
# What fp8 costs in right answers: problems of a folder of prompts, decoded by trained checkpoints
# with weights, inputs, head and cached rows in fp8, each compared with float32 by the same prompts.
# Usage: fp8.sh PROGRAM OUT PROMPTS WEIGHTS...    writes OUT/MODEL-TASK-FORM.json, prints a table
#   WEIGHTS   checkpoint folders (experiments/train); those that say block_size are block-causal
# Environment: tasks (default: hops lookup), seconds (a run; default: 120).
# What is there already is not run again.
set -eu
unmask=$1 out=$2 prompts=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
forms=(
    "f32:"
    "w8a8:storage.weights=fp8"
    "w8a16:storage.weights=fp8 storage.activations=f32"
    "w8a8-channel:storage.weights=fp8-channel"
    "head:storage.head=fp8 storage.activations=fp8"
    "cache:storage.cache=fp8"
    "all:storage.weights=fp8 storage.head=fp8 storage.cache=fp8"
    "all-channel:storage.weights=fp8-channel storage.head=fp8-channel storage.cache=fp8"
)
mkdir -p "$out"

for weights in "$@"; do
    model=$(basename "$weights") system=fast-dllm tied=0
    grep -q '"tie_word_embeddings": true' "$weights/config.json" && tied=1 # whose head is its embedding, in float32
    grep -q '"block_size"' "$weights/config.json" && system=sdar
    for task in ${tasks:-hops lookup}; do
        for form in "${forms[@]}"; do
            name=$model-$task-${form%%:*} sets=()
            [ -s "$out/$name.json" ] && continue
            for set in ${form#*:}; do
                [[ $tied = 1 && $set = storage.head* ]] || sets+=(--set "$set")
            done
            [[ $tied = 1 && ${form%%:*} = head ]] && continue
            reference=$out/$model-$task-f32.out
            [ -s "$reference" ] && sets+=(--reference "$reference")
            timeout -k 5 "${seconds:-120}" "$unmask" run --backend cpu --clock virtual --weights "$weights" \
                --workload "$prompts/$task.jsonl" --output-tokens 256 --system $system --decoder threshold \
                --set decoder.threshold=0.9 --set block_tokens=32 --set steps_per_block=32 --set early_stop=block \
                --set max_requests=64 "${sets[@]}" --outputs "$out/$name.out" --json >"$out/$name.part"
            mv "$out/$name.part" "$out/$name.json"
        done
    done
done
python3 "$here/fp8_table.py" "$out"
