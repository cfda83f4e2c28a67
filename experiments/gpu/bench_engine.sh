#!/bin/bash
# The engine beside its peers on one GPU: whole steps against torch.compile, live serving against the
# released implementations' throughput (experiments/reference/h200_released.csv).
# Usage: bench_engine.sh BUILD OUT [steps|serve|all] [GPU [BATCHxTOKENS...]]
# Needs BUILD/portable/unmask and BUILD/kernels/libunmask_cuda.so; for the steps, python3 with PyTorch.
set -u
build=$1 out=$2 what=${3:-all} gpu=${4:-h200}
shapes=(1x32 1x512 1x2048 8x512 1x8192)
[ $# -le 4 ] || shapes=("${@:5}")
here=$(dirname "$0")
libs=$(python3 -c 'import glob, os, torch
print(":".join(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/cu13/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
unmask="$build/portable/unmask"
engine="--backend cuda --library $build/kernels/libunmask_cuda.so --gpu $gpu"
failed=0

# One step over a whole canvas, every position decoded: BATCH TOKENS.
step() {
    $unmask explain $engine --system vanilla --model llada-8b --refresh "$1" --prompt $(($2 / 2)) \
        --output $(($2 - $2 / 2)) --set logit_scope=queries --set runtime.fused_head=on \
        --set context_tokens=$(($2 > 4096 ? $2 : 4096)) --set beyond_positions=on \
        --set max_requests="$1" --json >"$out/step-$1x$2.json" || failed=1
}

if [ "$what" != serve ]; then
    for shape in "${shapes[@]}"; do
        step "${shape%x*}" "${shape#*x}"
    done
    python3 "$here/bench_step.py" "$out/torch-steps.csv" "${shapes[@]}" >"$out/torch-steps.txt" 2>&1 || failed=1
    python3 - "$out" <<'PYTHON'
import csv, json, sys
out = sys.argv[1]
print(f"{'step':>8} {'ours, ms':>9} {'device':>8} {'host %':>7} {'compile':>8} {'ratio':>6} {'+graph':>8} {'ratio':>6}")
for row in csv.DictReader(open(f"{out}/torch-steps.csv")):
    name = f"{row['batch']}x{row['tokens']}"
    ours = json.load(open(f"{out}/step-{name}.json"))["measured"]
    wall, device = ours["wall_ms"], ours["device_ms"]
    peer, captured = float(row["torch_compile_ms"]), float(row["torch_compile_and_graph_ms"])
    print(f"{name:>8} {wall:9.3f} {device:8.3f} {100 * (wall - device) / wall:7.2f} {peer:8.3f} "
          f"{wall / peer:6.3f} {captured:8.3f} {wall / captured:6.3f}")
PYTHON
fi

# Live serving of N requests that are all there at the start, prompt 256, output 256, one token a step.
serve() {
    name=$1 n=$2
    shift 2
    $unmask run $engine --arrivals all-at-once --workload burst --requests "$n" --input-tokens 256 \
        --output-tokens 256 --json "$@" >"$out/$name.json" || failed=1
    python3 -c 'import json, sys
run = json.load(open(sys.argv[1]))
print("%28s %9.1f tok/s, %.2f s, %d steps" % (sys.argv[2], run["throughput_tok_s"],
                                              run["makespan_s"], run["steps"]))' \
        "$out/$name.json" "$name"
}

if [ "$what" != steps ]; then
    serve dllm-serve-64 64 --system dllm-serve
    serve dllm-serve-64-vmm 64 --system dllm-serve --set runtime.vmm=on
    serve dllm-serve-64-one-refresh 64 --system dllm-serve --set cache.delay_steps=0
    serve fast-dllm-1 1 --system fast-dllm
    serve fast-dllm-4 4 --system fast-dllm
    serve vanilla-1 1 --system vanilla
    serve vanilla-4 4 --system vanilla
fi
exit $failed
