#!/bin/bash
# How many answers stay right as decoders commit more tokens a pass: held-out problems decoded by trained
# checkpoints under every decoder, each at several settings; a table, and the area under each curve (AUP, d3LLM).
# Usage: aup.sh PROGRAM OUT PROMPTS WEIGHTS...    writes OUT/MODEL-TASK-DECODER-SETTING.json, prints two tables
# `aup.py csv OUT >aup.csv` then keeps what `unmask figure aup aup-curves` draws.
#   WEIGHTS   checkpoint folders (experiments/train); how each is decoded is read off its name
# Environment: tasks (default: easy hops), most (problems a task; default: 128), seconds (a run; default: 300), jobs (runs at a
# time; default: 1).
# What is there already is not run again.
set -u
unmask=$1 out=$2 prompts=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
mkdir -p "$out"

# DECODER SETTING ARGUMENTS...: of the weights and task at hand
one() {
    while [ "$(jobs -rp | wc -l)" -ge "${jobs:-1}" ]; do wait -n; done
    measure "$out/$model-$task-$1@$2" "${@:3}" &
}

measure() {
    local at=$1
    shift
    [ -s "$at.json" ] && return 0
    if timeout -k 5 "${seconds:-300}" "$unmask" run --backend cpu --clock virtual --weights "$weights" --workload "$out/$task.jsonl" \
        --output-tokens 96 --set early_stop=block --set max_requests=64 "${more[@]}" "$@" --decode-out "$at.db" --json \
        >"$at.part" 2>"$at.err"; then
        python3 "$here/aup.py" passes "$at.part" "$at.db" >"$at.line" && mv "$at.line" "$at.json"
        rm -f "$at.err"
    else
        echo "$at: $(tail -n 1 "$at.err")" >&2
    fi
    rm -f "$at.part" "$at.db"
}

block_causal() {
    one threshold one --system sdar --decoder fixed
    for t in 0.95 0.9 0.8 0.7 0.5; do
        one threshold $t --system sdar --decoder threshold --set decoder.threshold=$t
        one d2f $t --system d2f --set decoder.threshold=$t
        one multibd $t --system multibd --set decoder.threshold=$t
    done
    for t in 0.5 1 2 4; do
        one factor $t --system sdar --decoder factor --set decoder.factor=$t
        one entropy-bounded $t --system sdar --decoder entropy-bounded --set decoder.bound=$t
    done
    for t in 0.95 0.85 0.7; do
        one hierarchical $t --system sdar --decoder hierarchical --set decoder.threshold=$t --set decoder.low_threshold=0.4
    done
    for t in ratio,0 ratio,1 ratio,4 same,0 same,1; do # what a check must save; at 0 every draft is checked
        one self-speculation "${t/,/-}" --system sglang --decoder self-speculation --set decoder.threshold=0.9 \
            --set "decoder.accept=${t%,*}" --set "decoder.cost=${t#*,}" --set runtime.fused_head=off
    done
    for t in 0.9,0.7 0.7,0.5 0.5,0 0.3,0; do # Q and S mode in the middle
        one joint-threshold $t --system sglang --decoder joint-threshold --set "decoder.threshold=${t%,*}" \
            --set "decoder.edit_threshold=${t#*,}"
    done
}

bidirectional() {
    one threshold one --system vanilla --decoder fixed
    for t in 0.95 0.9 0.8 0.7 0.5; do
        one threshold $t --system vanilla --decoder threshold --set decoder.threshold=$t
        one dsb $t --system dsb --set decoder.threshold=$t
    done
    for t in 0.05 0.2 0.45 1; do
        one d3llm $t --system d3llm --set decoder.entropy=$t
    done
}

# Canvases of random tokens: the bound on entropy decides how much stays from one pass to the next.
noise() {
    local model_keys=(--set model.uniform_noise=on --set model.mask_token=4294967295 --set model.causal_prompt=on)
    for t in 0.01 0.1 0.5 2 8; do
        one renoise $t --system sdar --decoder renoise "${model_keys[@]}" --set block_tokens=32 --set "decoder.entropy_bound=$t"
    done
}

# Two byte tokens that no text has drop a position and put a mask before it (data.py; config.json names them).
moving() {
    for t in 0.7,0.5 0.5,0 0.3,0; do
        one joint-indel $t --system sglang --decoder joint-indel --set "decoder.threshold=${t%,*}" --set "decoder.edit_threshold=${t#*,}" \
            --set runtime.fused_head=off
    done
}

for weights in "$@"; do
    model=$(basename "$weights") more=()
    [ "$model" = llada2-2m ] && more=(--set model.block_routing=largest --set model.block_experts=6) # as it was trained
    for task in ${tasks:-easy hops}; do
        [ -s "$out/$task.jsonl" ] || head -n "${most:-128}" "$prompts/$task.jsonl" >"$out/$task.jsonl"
        case $model in
        *-all) block_causal && noise ;;
        *-indel) block_causal && moving ;;
        llada-*) bidirectional ;;
        *) block_causal ;;
        esac
    done
done
wait
python3 "$here/aup.py" table "$out"
