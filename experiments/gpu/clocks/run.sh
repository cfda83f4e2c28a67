#!/bin/bash
# A card's clock and power: a calibration, which holds steps until their clock has settled, then live
# runs that it knows nothing of, with NVML sampled all the while.
# Usage: run.sh PROGRAMS [DATA_DIR]     (about 4.5 minutes; writes $OUT/clocks.tar.gz and clocks.log)
# PROGRAMS holds unmask and libunmask_cuda.so; no run begins after LAST seconds (default: 248).
set -u
bin=$(realpath "$1") data=$(realpath "${2:-.}")
backend=${BACKEND:-cuda} model=${MODEL:-llada-8b} requests=${REQUESTS:-24} rate=${RATE:-3} tokens=${TOKENS:-8192}
export UNMASK_DATA=$data CUDA_MODULE_LOADING=EAGER
libs=$(python3 -c 'import glob, os, torch
d=os.path.dirname(os.path.dirname(torch.__file__))
print(":".join(glob.glob(d + "/nvidia/cu13/lib")+glob.glob(d + "/nvidia/nccl/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
work=${WORK:-/tmp/clocks-out}; rm -rf "$work"; mkdir -p "$work"
exec > >(tee "$OUT/clocks.log") 2>&1
name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null)
nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw,power.limit,temperature.gpu --format=csv,noheader 2>/dev/null
case $name in *H200*) gpu=h200;; *H100*) gpu=h100;; *) gpu=${GPU:-};; esac
dev=(--backend "$backend"); [ "$backend" = cuda ] && dev+=(--library "$bin/libunmask_cuda.so")
python3 "$(dirname "$0")/nvml.py" "$work/nvml.csv" & nvml=$!
pack() { kill "$nvml" 2>/dev/null; wait "$nvml" 2>/dev/null; echo "$EPOCHREALTIME end" >>"$work/times"; tar czf "$OUT/clocks.tar.gz" -C "$work" .; }
trap pack EXIT
t() { # NAME SECONDS COMMAND...
    local n=$1 s=$2; shift 2
    echo "$EPOCHREALTIME begin $n" >>"$work/times"; local a=$SECONDS
    timeout "$s" "$@" >"$work/$n.json" 2>"$work/$n.err"; local rc=$?
    echo "$EPOCHREALTIME end $n $rc" >>"$work/times"
    echo "$n: status $rc, $((SECONDS - a)) s $(tail -n 1 "$work/$n.err" | cut -c1-200)"
}
sleep 1
t calibrate 170 "$bin/unmask" calibrate --clocks "${dev[@]}" --model "$model" ${gpu:+--gpu $gpu} --minutes 0.2 ${QUICK:-} \
    --max-tokens "$tokens" --json --out "$work/fresh.csv"
live() { # NAME ARGUMENTS...
    local n=$1; shift
    [ $SECONDS -gt "${LAST:-248}" ] && { echo "$n: no time left"; return; }
    t "$n" 30 "$bin/unmask" run "$@" "${dev[@]}" --model "$model" ${gpu:+--gpu $gpu} --workload azure \
        --requests "$requests" --rate "$rate" --json --db "$work/$n.db" --levels steps ${EXTRA:-}
}
live fast-dllm --system fast-dllm
live fast-dllm-prefix-continuous --system fast-dllm-prefix --set scheduler=continuous --set max_requests=8
live dllm-serve --system dllm-serve
live fast-dllm-continuous --system fast-dllm --set scheduler=continuous
live sparse-dllm --system sparse-dllm
live fast-dllm-prefix --system fast-dllm-prefix
live dllm-serve-block-64 --system dllm-serve --set block_tokens=64
live fast-dllm-4 --system fast-dllm --set max_requests=4
live dllm-serve-all-rows --system dllm-serve --set cache.retention=1
