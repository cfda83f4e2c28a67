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

# FOLDER MODEL GPUS_JSON GPU: a block step beside one reading of the weights that its tokens need, 32 requests
# simulated beside live, and the device's share of unrolled steps.
table() {
    python3 - "$@" <<'PYTHON'
import json
import os
import sys

# Layers, dense ones among them, channels, query and key heads' channels, dense FFN, experts' FFN,
# shared FFN, experts, vocabulary (sim/model/models).
SHAPES = {
    "llada-moe": (16, 0, 2048, 2048, 2048, 0, 1024, 0, 64, 157184),
    "llada2-mini": (20, 1, 2048, 2048, 512, 5120, 512, 512, 256, 157184),
    "sdar-30b-a3b": (48, 0, 2048, 4096, 512, 0, 768, 0, 128, 151936),
}


def weight_bytes(model, hit):
    """What a step reads, in bf16, where each mixture layer's tokens go to `hit` experts."""
    layers, dense, c, q, kv, ffn, expert, shared, experts, vocab = SHAPES[model]
    attention = c * (q + 2 * kv) + q * c
    mixture = experts * c + 3 * c * (hit * expert + shared)
    return 2 * (layers * attention + dense * 3 * c * ffn + (layers - dense) * mixture + vocab * c)


def main(folder, model, gpus, gpu):
    load = lambda name: json.load(open(f"{folder}/{model}-{name}.json"))
    peak = next(row["GB/s"] for row in json.loads(gpus)["gpus"]["rows"] if row["name"] == gpu)
    for n in (1, 32):
        step = load(f"explain-{n}")
        hit, device = step["experts_hit"], step["measured"]["device_ms"]
        once = weight_bytes(model, hit["measured"]) / peak * 1e-6
        print(f"{model} x {n}: {step['tokens']} tokens, experts hit {hit['measured']:.1f} of {hit['experts']}"
              f" ({hit['expected']:.1f} expected); weights read {once * peak * 1e-3:.2f} GB, once at {peak:.0f} GB/s"
              f" {once:.3f} ms; step {device:.3f} ms, {device / once:.2f} x that"
              f" (wall {step['measured']['wall_ms']:.3f}); priced {step['device_ms']:.3f} ms"
              f" ({100 * (step['device_ms'] / device - 1):+.1f} %)")
        for op in sorted(step["operators"], key=lambda op: -(op["measured_ms"] or 0))[:12]:
            if op["measured_ms"]:
                print(f"    {op['operator']:<36} {op['times']:>3} x  measured {op['measured_ms']:8.3f} ms"
                      f"  priced {op['ms']:8.3f} ms ({op['error_%']:+6.1f} %)")
    sim, live = load("sim"), load("live")
    for key in ("makespan_s", "throughput_tok_s", "activation_peak_bytes", "kv_peak_bytes"):
        print(f"{model} 32 requests {key:<22} simulated {sim[key]:14.6g} live {live[key]:14.6g}"
              f" ({100 * (sim[key] / live[key] - 1):+.2f} %)")
    for k in (1, 4):
        if os.path.exists(f"{folder}/{model}-unrolled-{k}.json"):
            run = load(f"unrolled-{k}")
            print(f"{model} as dInfer serves it, up to {k} steps at a time: {run['steps']} steps,"
                  f" {run['tokens_committed']} tokens in {run['makespan_s']:.3f} s,"
                  f" {100 * (1 - run['gpu_busy']):.2f} % of it not the device's")


main(*sys.argv[1:])
PYTHON
}

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
    table "$out" "$1" "$("$unmask" list gpus --json)" "$gpu" || failed=1
    sed -n '/predicted/,$p' "$out/$1-steps.txt" | head -12
}

for model in $models; do
    case $model in
    llada-moe) one llada-moe fast-dllm 64 ;;
    *) one "$model" sdar 32 ;;
    esac
done
exit $failed
