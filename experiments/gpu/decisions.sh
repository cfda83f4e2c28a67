#!/bin/bash
# Whether the simulator decides as the GPU does: a grid of configurations of LLaDA-8B under real
# arrivals and lengths, run freely on the GPU and simulated with the shipped profile and with one
# that was calibrated in a process of its own just before.
# Usage: decisions.sh BUILD OUT GPU [MINUTES_OF_CALIBRATION]
# Needs BUILD/portable/unmask and BUILD/kernels/libunmask_cuda.so. decisions_table.py OUT prints the
# errors, Kendall's tau and the regret of choosing by the simulation.
set -u
build=$1 out=$2 gpu=$3 minutes=${4:-2}
here=$(dirname "$0")
libs=$(python3 -c 'import glob, os, torch
print(":".join(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/cu13/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
unmask="$build/portable/unmask"
cuda=(--backend cuda --library "$build/kernels/libunmask_cuda.so")
failed=0

if [ ! -s "$out/fresh.csv" ]; then
    "$unmask" calibrate "${cuda[@]}" --model llada-8b --gpu "$gpu" --minutes "$minutes" --json \
        --out "$out/fresh.csv" >"$out/calibrate.json" || failed=1
fi

# NAME ARGUMENTS...
one() {
    name=$1
    shift
    common=("$@" --model llada-8b --gpu "$gpu" --workload azure --requests 24 --rate 3 --json)
    "$unmask" run "${common[@]}" "${cuda[@]}" >"$out/$name-live.json" || failed=1
    "$unmask" run "${common[@]}" >"$out/$name-shipped.json" || failed=1
    "$unmask" run "${common[@]}" --profile "$out/fresh.csv" >"$out/$name-fresh.json" || failed=1
}

one dllm-serve --system dllm-serve
one dllm-serve-0.3 --system dllm-serve --set cache.retention=0.3
one dllm-serve-block-64 --system dllm-serve --set block_tokens=64
one dllm-serve-8 --system dllm-serve --set max_requests=8
one dllm-serve-continuous --system dllm-serve --set scheduler=continuous
one dllm-serve-all-rows --system dllm-serve --set cache.retention=1
one sparse-dllm --system sparse-dllm
one fast-dllm --system fast-dllm
one fast-dllm-4 --system fast-dllm --set max_requests=4
one fast-dllm-prefix --system fast-dllm-prefix
one fast-dllm-continuous --system fast-dllm --set scheduler=continuous
one fast-dllm-prefix-continuous --system fast-dllm-prefix --set scheduler=continuous --set max_requests=8
python3 "$here/decisions_table.py" "$out" | tee "$out/table.txt"
exit $failed
