#!/bin/bash
# Models held by 1, 2 and 4 GPUs of this machine, shapes with random weights: LLaDA-8B and LLaDA-MoE
# (dual cache), LLaDA2.0-mini (exact keys and values), mixtures also with their experts divided. The
# same 32 requests live at each, one prompt alone, both simulated with a profile of a rank's shapes
# at 2; and the sums over 2 or more GPUs beside NCCL's.
# Usage: tensor_parallel.sh BUILD OUT [RANKS...], 1 and 2 unless given. Needs BUILD/portable/unmask,
# BUILD/kernels/libunmask_cuda.so and BUILD/tests/gpu/test_ranks. About 2 minutes at 1 and 2, 4 more
# for 4. PARTS in the environment names what to do of `calibrate live sums`, all unless given; the
# table is of what OUT holds by then. MODELS likewise.
set -u
build=$1 out=$2
shift 2
ranks=${*:-1 2}
here=$(dirname "$0")
libs=$(python3 -c 'import glob, os, torch
root = os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/"
print(":".join(glob.glob(root + "cu13/lib") + glob.glob(root + "nccl/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
unmask="$build/portable/unmask"
cuda=(--backend cuda --library "$build/kernels/libunmask_cuda.so")
gpu=${GPU:-h200}
mkdir -p "$out"
failed=0

wants() { [[ " ${PARTS:-calibrate live sums} " == *" $1 "* ]]; }

# What does not come back within a minute and a half has stopped.
try() { timeout 90 "$@" || { echo "failed: ${*:2:7} ..." >&2; failed=1; }; }

# SYSTEM and BLOCK of a model
line_up() {
    case $1 in
    llada2-mini) echo "sdar 32" ;;
    llada-moe) echo "fast-dllm 64" ;;
    *) echo "fast-dllm 32" ;;
    esac
}

calibrate() {
    local began
    began=$(date +%s)
    try "$unmask" calibrate "${cuda[@]}" --model "$1" --gpu "$gpu" --quick --tensor-parallel 2 \
        --out "$out/$1-tp2.csv" --json >"$out/$1-calibrate.json"
    echo "$1, a rank of two, calibrated in $(($(date +%s) - began)) s"
}

# MODEL RANKS EXPERTS: name, and the line-up's options in the array `common`
prepare() {
    local system block
    read -r system block <<<"$(line_up "$1")"
    name="$1-tp$2"
    common=(--system "$system" --model "$1" --gpu "$gpu" --set expert_router=random --set block_tokens="$block"
        --set tensor_parallel="$2")
    if [ "$3" = experts ]; then
        name="$1-ep$2"
        common+=(--set expert_parallel=on)
    fi
    # 16 steps a block, as many tokens in each; all requests are there from the start.
    common+=(--set steps_per_block=16 --decoder fixed)
    traffic=(--workload burst --rate 100000 --input-tokens 256 --output-tokens 128
        --set max_batched_tokens=16384)
}

live() {
    prepare "$@"
    try "$unmask" run "${common[@]}" "${traffic[@]}" --requests 32 "${cuda[@]}" --json \
        >"$out/$name-live.json"
    try "$unmask" run "${common[@]}" "${traffic[@]}" --requests 1 "${cuda[@]}" --json \
        >"$out/$name-live-1.json"
    try "$unmask" generate "${common[@]}" "${cuda[@]}" --ids "$(seq -s, 1 256)" \
        --output-tokens 128 --json >"$out/$name-tokens.json"
}

simulate() {
    local profile="$out/$1-tp2.csv"
    prepare "$1" 2 width
    if [ -s "$profile" ]; then
        for n in 32 1; do
            try "$unmask" run "${common[@]}" "${traffic[@]}" --requests "$n" --profile "$profile" \
                --json >"$out/$name-sim-$n.json"
        done
    fi
}

for model in ${MODELS:-llada-8b llada-moe llada2-mini}; do
    if wants calibrate; then
        calibrate "$model"
    fi
    for n in $ranks; do
        if wants live; then
            live "$model" "$n" width
            if [ "$n" -gt 1 ] && [ "$model" != llada-8b ]; then
                live "$model" "$n" experts
            fi
        fi
    done
    simulate "$model"
done 2>>"$out/errors.txt"
for n in $ranks; do
    if [ "$n" -gt 1 ] && wants sums; then
        try "$build/tests/gpu/test_ranks" "$build/kernels/libunmask_cuda.so" "$n" nccl \
            >"$out/test_ranks-$n.txt" 2>&1
        tail -1 "$out/test_ranks-$n.txt"
    fi
done
grep -v "served in\|simulated in\|calibrated in" "$out/errors.txt"
python3 "$here/tensor_parallel_table.py" "$out" || failed=1
exit $failed
