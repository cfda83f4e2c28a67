#!/bin/bash
# Whether the simulator decides as the GPU does: grids of configurations under real arrivals and
# lengths (the Azure conversation trace), run freely on the GPU and simulated with the shipped profile
# and with one that was calibrated in a process of its own.
#
#   decisions.sh calibrate BUILD OUT GPU MODEL...  OUT/fresh-MODEL.csv, clocks and power included
#   decisions.sh live BUILD OUT GPU PART...        the parts on the GPU; a run that is there is kept
#   decisions.sh again BUILD OUT GPU PART...       the same once more: how far the GPU is from itself
#   decisions.sh simulate BUILD OUT GPU [PART...]  on any machine, those that ran live; and their
#                                          batches at the shipped profile's prices ("batches")
#   decisions.sh noise BUILD OUT GPU [PART...]     on any machine: simulated thrice, with products as they
#                                          are priced (in live's place), 2 % quicker and 2 % slower, which is
#                                          0.5 to 1 % of the steps: how far that moves the part (REQUESTS requests)
#   decisions.sh table BUILD OUT                   errors, ranks, regret (decisions_table.py OUT)
#
# RUNS='@(dllm-serve|fast-dllm*)' leaves out configurations not so named, so that two cards can share a part.
#
# Parts: grid (LLaDA-8B, 12 configurations at 3 a second), idle (one at a time), twice (four times that
# rate: twice what is served), pressure (memory for some 3 GiB of cache), sdar (SDAR-8B: LMDeploy,
# DC+, FOCUS at two thresholds), sdar-pressure (with preemption), mini (LLaDA2.0-mini), features (LLaDA-8B:
# dLLM-Cache, SparseD, half as many requests).
# BUILD holds portable/unmask (or unmask) and kernels/libunmask_cuda.so.
set -u
what=$1 build=$2 out=$3 gpu=${4:-}
shift $(($# < 4 ? $# : 4))
here=$(dirname "$0")
libs=$(python3 -c 'import glob, os, torch
print(":".join(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/cu13/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
unmask="$build/portable/unmask"
[ -x "$unmask" ] || unmask="$build/unmask"
backend=${BACKEND:-cuda}
device=(--backend "$backend")
clocks=()
[ "$backend" = cuda ] && device+=(--library "$build/kernels/libunmask_cuda.so") && clocks=(--clocks)
requests=${REQUESTS:-24}
failed=0
mkdir -p "$out"

# A run that was stopped says so: it is run again and simulated by no one.
whole() { [ -s "$1" ] && grep -q '"incomplete": null' "$1"; }

# NAME MODEL ARGUMENTS...: one run of a part, in both worlds.
one() {
    # shellcheck disable=SC2053
    [[ $1 == ${RUNS:-*} ]] || return
    name=$part-$1 model=${MODEL:-$2}
    shift 2
    common=("$@" --model "$model" --gpu "$gpu" --workload azure --set expert_router=random --json)
    # What random weights are sure of no process says: thresholds are simulated with the decisions
    # of a live run of their own, for writing them takes the host 0.06 ms a step (H200, 2026-11-25).
    decode=$out/$name-decode.db
    case $part in sdar* | mini) decides=1 ;; *) decides=0 ;; esac
    if [ "$what" = noise ]; then
        for kind in exact:1 quicker:0.98 slower:1.02; do
            rm -f "$out/$name-${kind%:*}.db"
            "$unmask" run "${common[@]}" --set runtime.product_ratio="${kind#*:}" --db "$out/$name-${kind%:*}.db" \
                >"$out/$name-${kind%:*}.json" 2>"$out/$name-${kind%:*}.err" || { failed=1; tail -n 1 "$out/$name-${kind%:*}.err"; }
        done
        return
    fi
    if [ "$what" != simulate ]; then
        whole "$out/$name-$what.json" && return
        [ $SECONDS -gt "${LAST:-100000}" ] && { echo "$name: no time left"; return; }
        rm -f "$out/$name-$what.db"
        start=$SECONDS
        if [ "$decides" = 1 ] && [ ! -s "$decode" ]; then
            "$unmask" run "${common[@]}" "${device[@]}" --decode-out "$decode" >"$out/$name-decode.json" \
                2>"$out/$name-decode.err" || { failed=1; tail -n 1 "$out/$name-decode.err"; return; }
        fi
        "$unmask" run "${common[@]}" "${device[@]}" --db "$out/$name-$what.db" --levels steps \
            >"$out/$name-$what.json" 2>"$out/$name-$what.err" || { failed=1; tail -n 1 "$out/$name-$what.err"; rm -f "$out/$name-$what.json"; }
        echo "$name: $((SECONDS - start)) s"
        return
    fi
    whole "$out/$name-live.json" || return
    [ $decides = 1 ] && common+=(--decode "$decode")
    # Status 1 where the run is of another build or profile: its batches are the same.
    "$unmask" replay --db "$out/$name-live.db" --run 1 --json >"$out/$name-batches.json" 2>"$out/$name-batches.err"
    [ -s "$out/$name-batches.json" ] || { failed=1; tail -n 1 "$out/$name-batches.err"; rm -f "$out/$name-batches.json"; }
    for kind in shipped fresh; do
        profile=()
        [ $kind = fresh ] && profile=(--profile "$out/fresh-$model.csv")
        [ $kind = fresh ] && [ ! -s "$out/fresh-$model.csv" ] && continue
        rm -f "$out/$name-$kind.db"
        "$unmask" run "${common[@]}" ${profile[@]+"${profile[@]}"} --db "$out/$name-$kind.db" \
            >"$out/$name-$kind.json" 2>"$out/$name-$kind.err" || { failed=1; tail -n 1 "$out/$name-$kind.err"; rm -f "$out/$name-$kind.json"; }
    done
}

grid() { # of LLaDA-8B, with these arguments
    one dllm-serve llada-8b --system dllm-serve "$@"
    one fast-dllm llada-8b --system fast-dllm "$@"
    one fast-dllm-continuous llada-8b --system fast-dllm --set scheduler=continuous "$@"
    one sparse-dllm llada-8b --system sparse-dllm "$@"
}

more_of_grid() {
    one fast-dllm-prefix llada-8b --system fast-dllm-prefix "$@"
    one fast-dllm-prefix-continuous llada-8b --system fast-dllm-prefix --set scheduler=continuous --set max_requests=8 "$@"
    one fast-dllm-4 llada-8b --system fast-dllm --set max_requests=4 "$@"
    one dllm-serve-0.3 llada-8b --system dllm-serve --set cache.retention=0.3 "$@"
    one dllm-serve-block-64 llada-8b --system dllm-serve --set block_tokens=64 "$@"
    one dllm-serve-8 llada-8b --system dllm-serve --set max_requests=8 "$@"
    one dllm-serve-continuous llada-8b --system dllm-serve --set scheduler=continuous "$@"
    one dllm-serve-all-rows llada-8b --system dllm-serve --set cache.retention=1 "$@"
}

block_diffusion() {
    one lmdeploy sdar-8b --system lmdeploy "$@"
    one dc+ sdar-8b --system dc+ "$@"
    one focus-0.8 sdar-8b --system focus "$@"
    one focus-0.9 sdar-8b --system focus-0.9 "$@"
}

# What share of the card's memory is so many GiB.
share() {
    case $gpu in h100) gib=80 ;; *) gib=141 ;; esac
    awk -v wanted="$1" -v gib=$gib 'BEGIN { printf "%.4f", wanted / gib }'
}

run_part() {
    part=$1
    case $part in
    grid) grid --requests "$requests" --rate 3; more_of_grid --requests "$requests" --rate 3 ;;
    idle) grid --requests 6 --rate 0.5 ;;
    twice) grid --requests "$requests" --rate 12 ;;
    pressure) grid --requests "$requests" --rate 3 --set memory_utilization="$(share 19.03)" ;;
    sdar) block_diffusion --requests "$requests" --rate 6 ;;
    sdar-pressure) one lmdeploy sdar-8b --system lmdeploy --requests "$requests" --rate 12 --set memory_utilization="$(share 21.57)" ;;
    mini)
        one sglang llada2-mini --system sglang --requests "$requests" --rate 6
        one dinfer-block-diffusion llada2-mini --system dinfer-block-diffusion --requests "$requests" --rate 6
        ;;
    features)
        one dllm-cache llada-8b --system dllm-cache --requests $((requests / 2)) --rate 3
        one sparsed llada-8b --system sparsed --requests $((requests / 2)) --rate 3
        ;;
    *) echo "there is no part '$part'" >&2; failed=1 ;;
    esac
}

case $what in
calibrate)
    for model; do
        [ -s "$out/fresh-$model.csv" ] && continue
        start=$SECONDS
        "$unmask" calibrate ${clocks[@]+"${clocks[@]}"} "${device[@]}" --model "$model" --gpu "$gpu" --minutes 0.1 \
            --max-tokens "${TOKENS:-8192}" ${QUICK:-} --json --out "$out/fresh-$model.csv" \
            >"$out/calibrate-$model.json" 2>"$out/calibrate-$model.err" || failed=1
        echo "calibrate $model: $((SECONDS - start)) s, $(tail -n 1 "$out/calibrate-$model.err")"
    done
    ;;
live | again | simulate | noise)
    [ $# -gt 0 ] || set -- grid idle twice pressure sdar sdar-pressure mini features
    for part; do run_part "$part"; done
    ;;
table) python3 "$here/decisions_table.py" "$out" || failed=1 ;;
*) sed -n '2,/^set/p' "$0" >&2; exit 2 ;;
esac
exit $failed
