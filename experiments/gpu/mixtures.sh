#!/bin/bash
# Mixtures of experts on this GPU, shapes with random weights: LLaDA-MoE (dual cache, blocks of 64)
# and LLaDA2.0-mini (exact keys and values, blocks of 32). Calibrates both; a block step of 1 and of
# 32 requests by operator, beside one reading of the weights that the step needs; and 32 requests
# live, simulated with that profile, and priced anew step by step. LLaDA-MoE besides as dInfer serves
# it, step by step and unrolled: how much of the time the device is busy.
# Usage: [minutes=2] mixtures.sh BUILD OUT [GPU [MODEL...]]; so long operators may be measured
# Needs BUILD/portable/unmask and BUILD/kernels/libunmask_cuda.so. About 6 minutes.
set -u
build=$1 out=$2 gpu=${3:-h200} minutes=${minutes:-2}
shift 2
[ $# = 0 ] || shift
models=${*:-llada-moe llada2-mini}
here=$(dirname "$0")
libs=$(python3 -c 'import glob, os, torch
print(":".join(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/cu13/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
unmask="$build/portable/unmask"
cuda=(--backend cuda --library "$build/kernels/libunmask_cuda.so")
mkdir -p "$out"
failed=0

# MODEL SYSTEM BLOCK
one() {
    profile="$out/$1.csv" began=$(date +%s)
    "$unmask" calibrate "${cuda[@]}" --model "$1" --gpu "$gpu" --minutes "$minutes" --out "$profile" --json \
        >"$out/$1-calibrate.json" || failed=1
    echo "$1 calibrated in $(($(date +%s) - began)) s"
    common=(--system "$2" --model "$1" --gpu "$gpu" --profile "$profile" --set block_tokens="$3" --set expert_router=random)
    for n in 1 32; do
        "$unmask" explain "${common[@]}" "${cuda[@]}" --reuse "$n" --json >"$out/$1-explain-$n.json" || failed=1
    done
    # 16 steps a block, as many tokens in each; all requests are there from the start.
    traffic=(--workload burst --requests 32 --rate 100000 --input-tokens 256 --output-tokens 128
        --set steps_per_block=16 --decoder fixed --set max_batched_tokens=16384)
    db="$out/$1.db"
    rm -f "$db"
    "$unmask" run "${common[@]}" "${traffic[@]}" --json >"$out/$1-sim.json" || failed=1
    "$unmask" run "${common[@]}" "${traffic[@]}" "${cuda[@]}" --db "$db" --levels steps --json \
        >"$out/$1-live.json" || failed=1
    "$unmask" replay --db "$db" --run 1 --steps "$out/$1-steps.csv" >"$out/$1-steps.txt" || failed=1
    rm -f "$db"
    [ "$1" != llada-moe ] || for k in 1 4; do
        "$unmask" run --system dinfer --model "$1" --gpu "$gpu" --profile "$profile" --workload burst \
            --requests 4 --rate 100000 --input-tokens 256 --output-tokens 256 \
            --set unroll.maximum=$k "${cuda[@]}" --json >"$out/$1-unrolled-$k.json" || failed=1
    done
    python3 "$here/mixture_table.py" "$out" "$1" "$("$unmask" list gpus --json)" "$gpu" || failed=1
    sed -n '/predicted/,$p' "$out/$1-steps.txt" | head -12
}

for model in $models; do
    case $model in
    llada-moe) one llada-moe fast-dllm 64 ;;
    *) one "$model" sdar 32 ;;
    esac
done
exit $failed
