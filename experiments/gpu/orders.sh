#!/bin/bash
# Orders live: LLaDA-8B (random weights) on this GPU under dLLM-Serve's scheduler and those that go by
# what requests have yet to run (look-ahead, shortest-left, least-slack), on one real trace beyond
# saturation, simulated and live, beside what no scheduler beats.
# Usage: orders.sh PROGRAMS OUT [GPU]       (about 130 seconds of an H200; writes OUT/table.txt)
# PROGRAMS holds unmask and libunmask_cuda.so; no live run begins after LAST seconds (default: 120).
# BACKEND=cpu MODEL=... REQUESTS=... TOKENS=... GPU cpu rehearses it without a GPU.
set -u
bin=$(realpath "$1") out=$2 gpu=${3:-h200}
backend=${BACKEND:-cuda} model=${MODEL:-llada-8b} requests=${REQUESTS:-72} tokens=${TOKENS:-}
objective=${OBJECTIVE:-6s}
here=$(realpath "$(dirname "$0")")
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)} CUDA_MODULE_LOADING=EAGER
libs=$(python3 -c 'import glob, os, torch
d=os.path.dirname(os.path.dirname(torch.__file__))
print(":".join(glob.glob(d + "/nvidia/cu13/lib")+glob.glob(d + "/nvidia/nccl/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
device=(--backend "$backend")
[ "$backend" = cuda ] && device+=(--library "$bin/libunmask_cuda.so")
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu --format=csv,noheader 2>/dev/null
failed=0
trace=(--system dllm-serve --model "$model" --gpu "$gpu" --workload azure --requests "$requests" --rate 6
    --seed 2 --slo-latency "$objective" ${tokens:+--output-tokens $tokens --input-tokens $tokens} --json)

# NAME SETTING...
one() {
    local name=$1 settings=()
    shift
    for setting in "$@"; do settings+=(--set "$setting"); done
    "$bin/unmask" run "${trace[@]}" "${settings[@]}" >"$out/$name-sim.json" 2>/dev/null || failed=1
    [ $SECONDS -gt "${LAST:-120}" ] && { echo "$name: no time left"; return; }
    "$bin/unmask" run "${trace[@]}" "${settings[@]}" "${device[@]}" --db "$out/live.db" --levels steps \
        >"$out/$name-live.json" 2>"$out/$name-live.err" || { failed=1; tail -n 1 "$out/$name-live.err"; }
    echo "$name: $SECONDS s"
}

"$bin/unmask" bound "${trace[@]}" --no-run >"$out/bound.json" || failed=1
one phase-multiplexed scheduler=phase-multiplexed
one look-ahead scheduler=look-ahead
one shortest-left scheduler=shortest-left
one least-slack scheduler=least-slack "scheduler.latency=$objective"
python3 - "$out" <<'PYTHON' | tee "$out/table.txt"
import json, sys
out = sys.argv[1]
def read(name):
    try:
        return json.load(open(f"{out}/{name}.json"))
    except (OSError, ValueError):
        return None
bound = read("bound")
bound = bound and bound["systems"][0]["bound"]
print("| scheduler | | tok/s | mean s | p99 s | on time |")
print("|---|---|--:|--:|--:|--:|")
if bound:
    print(f"| no schedule beats | sim | {bound['throughput_tok_s']:.1f} | {bound['latency_mean_s']:.2f} | "
          f"| {bound['attainment']:.3f} |")
for name in "phase-multiplexed", "look-ahead", "shortest-left", "least-slack":
    for side in "sim", "live":
        run = read(f"{name}-{side}")
        if run:
            print(f"| {name} | {side} | {run['throughput_tok_s']:.1f} | {run['latency_s']['mean']:.2f} "
                  f"| {run['latency_s']['p99']:.2f} | {run['attainment']:.3f} |")
PYTHON
rm -f "$out/live.db.lock"
exit $failed
