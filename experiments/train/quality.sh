#!/bin/bash
# What policies cost in right answers: every problem of a folder of prompts, decoded by trained
# checkpoints under the decoders and caches whose quality papers report; JSON with accuracy,
# agreement and times, outputs, and decode traces for `unmask fit decode`.
# Usage: quality.sh PROGRAM LIBRARY OUT PROMPTS WEIGHTS...
#   LIBRARY   libunmask_cuda.so, or cpu
#   PROMPTS   a folder of TASK.jsonl (`data.py prompts FOLDER` writes all of them)
#   WEIGHTS   checkpoint folders (experiments/train); those that say block_size are block-causal
# Environment: traces=0 (no decode traces, which take time), jobs (pairs of a model and a task at a time; default: 1), tasks (default: gsm hops lookup pick shots), most (problems a task; default: all),
# output_tokens (default: 256), seconds (a run; default: 60), minutes (all of them; default: 9), only (a pattern of names), gpu (default: h100).
# memory: the share of the GPU's memory that each may take (default: 0.9 over jobs).
# What is there already is not run again, so that the same command goes on where it was cut off.
# A run that fails or takes longer leaves NAME.err and the others go on.
set -u
unmask=$1 library=$2 out=$3 prompts=$4
shift 4
here=$(cd "$(dirname "$0")/../.." && pwd)
export UNMASK_DATA=${UNMASK_DATA:-$here} CUDA_MODULE_LOADING=EAGER
jobs=${jobs:-1} seconds=${seconds:-60} only=${only:-*} tasks=${tasks:-gsm hops lookup pick shots}
end=$((SECONDS + 60 * ${minutes:-9}))
backend=(--backend cuda --library "$library" --gpu "${gpu:-h100}")
[ "$library" = cpu ] && backend=(--backend cpu)
mkdir -p "$out"
n_done=0 n_failed=0 n_left=0

# NAME ARGUMENTS...: of the weights, task and reference at hand; `traced`: with a decode trace
one() {
    local name=$model-$task-$1 at=$out/$model-$task-$1 extra=()
    shift
    # shellcheck disable=SC2053  # a pattern
    [[ $name == $only ]] || return 0
    [ -s "$at.json" ] && return 0
    [ "$SECONDS" -ge "$end" ] && { n_left=$((n_left + 1)); return 0; }
    [ "$traced" = 1 ] && [ "${traces:-1}" = 1 ] && extra+=(--decode-out "$at.db")
    [ "$at" != "$reference" ] && [ -s "$reference.out" ] && extra+=(--reference "$reference.out")
    if timeout -k 5 "$seconds" "$unmask" run "${backend[@]}" --weights "$weights" --roofline \
        --workload "$out/$task.jsonl" --output-tokens "$tokens" --set block_tokens=32 \
        --set steps_per_block=32 --set early_stop=block --set max_requests=64 \
        --set memory_utilization="${memory:-$(awk "BEGIN { print 0.9 / $jobs }")}" "$@" "${extra[@]}" \
        --outputs "$at.out" --json >"$at.part" 2>"$at.err"; then
        mv "$at.part" "$at.json"
        rm -f "$at.err"
        n_done=$((n_done + 1))
    else
        echo "$name: $(tail -n 1 "$at.err")" >&2
        rm -f "$at.part" "$at.out" "$at.db.part"
        n_failed=$((n_failed + 1))
    fi
}

# Every decoder on one system.
decoders() {
    for threshold in 0.9 0.8 0.7; do
        one "$1-$threshold" --system "$2" --decoder threshold --set decoder.threshold=$threshold
    done
    one "$1-hierarchical" --system "$2" --decoder hierarchical
    one "$1-credit" --system "$2" --decoder credit
    one "$1-factor" --system "$2" --decoder factor
    one "$1-entropy" --system "$2" --decoder entropy-bounded
}

# Tokens drawn at temperatures, where the others take the most likely one.
sampled() {
    for temperature in 0.2 0.5 1; do
        one "drawn-$temperature-0.9" --system "$1" --decoder threshold --set decoder.threshold=0.9 \
            --set sampling=on --set temperature=$temperature
    done
    one drawn-1-p0.9-0.9 --system "$1" --decoder threshold --set decoder.threshold=0.9 \
        --set sampling=on --set temperature=1 --set top_p=0.9
    one drawn-1-one --system "$1" --decoder fixed --set sampling=on --set temperature=1
}

block_causal() {
    traced=$short
    one one --system sdar --decoder fixed
    traced=1
    decoders plain sdar
    for threshold in 0.9 0.8 0.7; do
        for alpha in 1 1.5 2; do # FOCUS, Table 4
            one "focus-$threshold-$alpha" --system focus --set decoder.threshold=$threshold \
                --set cache.alpha=$alpha
        done
    done
    traced=0
    for cache in dc dc+; do # Table 6
        decoders "$cache" "$cache"
    done
    for decoder in hierarchical credit factor entropy-bounded; do
        one "focus-${decoder%-bounded}" --system focus --decoder $decoder
    done
    sampled sdar
    for choice in top random bottom left; do # Table 3; 0: as many as alpha says
        for k in 0 2 4 8; do
            one "focus-$choice-$k" --system focus --set decoder.threshold=0.9 \
                --set cache.choice=$choice --set cache.k=$k
        done
    done
    for layer in 2 3; do
        one "focus-layer-$layer" --system focus --set decoder.threshold=0.9 --set cache.layer=$layer
    done
}

bidirectional() {
    traced=$short
    one one --system vanilla --decoder fixed
    traced=1
    decoders none vanilla
    for iteration in plain smooth; do # dInfer's cache and decoding, with IterSmooth and without
        for threshold in 0.9 0.8 0.7; do
            one "vicinity-$iteration-$threshold" --system dinfer-0.8 --set iteration=$iteration \
                --set decoder.threshold=$threshold
        done
    done
    one dinfer --system dinfer
    one dinfer-credit --system dinfer-credit
    one dinfer-smooth --system dinfer-smooth
    for system in fast-dllm fast-dllm-prefix dkv-cache sparse-dllm dllm-serve dllm-cache; do
        decoders $system $system
    done
    traced=0
    sampled vanilla
    for system in fast-dllm dkv-cache sparse-dllm dllm-serve dllm-cache; do
        one "$system-one" --system $system --decoder fixed
    done
    # SparseD, in its blocks for short prompts: after a fifth of the nominal steps and, since a threshold takes few of
    # them, from the second step on.
    for select in 0.3 0.5; do
        sparse=(--system sparsed --set cache.pattern_tokens=32 --set cache.select=$select)
        one "sparsed-$select-one" "${sparse[@]}" --decoder fixed
        one "sparsed-$select-0.9" "${sparse[@]}" --decoder threshold --set decoder.threshold=0.9 --set cache.skip=0
    done
    for steps in 1 2 4 8; do # renewal at fixed intervals
        for system in fast-dllm fast-dllm-prefix dllm-serve; do
            one "$system-every-$steps" --system $system --decoder threshold --set decoder.threshold=0.9 \
                --set cache.interval_steps=$steps
        done
    done
    for recent in 1 8; do # EntropyCache
        for bound in 0.05 0.2 1 3; do
            one "entropy-cache-$bound-$recent" --system entropy-cache --decoder threshold \
                --set decoder.threshold=0.9 --set cache.bound_nats=$bound --set cache.recent_tokens=$recent
        done
    done
    for retention in 0.1 0.2 0.3 0.4; do # dLLM-Serve, Figure 6
        one "uniform-$retention" --system sparse-dllm --decoder fixed --set cache.retention=$retention
        one "head-$retention" --system dllm-serve --decoder fixed --set cache.retention=$retention
    done
}

# All runs of a model and a task, one after the other; `jobs` of these at a time. Times of runs that
# share the device are not to be compared: for those, jobs=1.
for weights in "$@"; do
    model=$(basename "$weights")
    for task in $tasks; do
        [ -s "$prompts/$task.jsonl" ] || continue
        [ -s "$out/$task.jsonl" ] || head -n "${most:-1000000}" "$prompts/$task.jsonl" >"$out/$task.jsonl"
        # Traces of one token a pass are large where answers are long.
        case $task in hops | lookup) short=1 ;; *) short=0 ;; esac
        tokens=${output_tokens:-256}
        reference=$out/$model-$task-one
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
        {
            if grep -q '"block_size"' "$weights/config.json"; then block_causal; else bidirectional; fi
            echo "$model $task: $n_done runs done, $n_failed failed, $n_left left for the next call; $SECONDS s"
            exit $((n_failed > 0))
        } &
    done
done
failed=0
for job in $(jobs -p); do wait "$job" || failed=1; done
exit $failed
