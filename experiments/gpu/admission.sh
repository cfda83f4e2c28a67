#!/bin/bash
# Admission live: LLaDA-8B (random weights) on this GPU under fixed limits of requests, dLLM-Serve's
# own admission and the knee, on one real trace, simulated and live, beside what no scheduler beats.
# Usage: admission.sh PROGRAMS OUT [GPU]       (about 130 seconds of an H200; writes OUT/table.txt)
# PROGRAMS holds unmask and libunmask_cuda.so; no live run begins after LAST seconds (default: 125).
# BACKEND=cpu MODEL=... GPU cpu rehearses it without a GPU.
set -u
bin=$(realpath "$1") out=$2 gpu=${3:-h200}
backend=${BACKEND:-cuda} model=${MODEL:-llada-8b} requests=${REQUESTS:-48} tokens=${TOKENS:-}
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

# NAME RATE SETTING
one() {
    local common=(--system dllm-serve --model "$model" --gpu "$gpu" --workload azure --requests "$requests"
        --rate "$2" --set "$3" ${tokens:+--output-tokens $tokens --input-tokens $tokens} --json)
    "$bin/unmask" run "${common[@]}" >"$out/$1-sim.json" 2>/dev/null || failed=1
    [ $SECONDS -gt "${LAST:-125}" ] && { echo "$1: no time left"; return; }
    "$bin/unmask" run "${common[@]}" "${device[@]}" --db "$out/live.db" --levels steps \
        >"$out/$1-live.json" 2>"$out/$1-live.err" || { failed=1; tail -n 1 "$out/$1-live.err"; }
    echo "$1: $SECONDS s"
}

# What no scheduler beats, whatever max_requests is; simulated.
for load in once:1000 load:2.6; do
    "$bin/unmask" bound --system dllm-serve --model "$model" --gpu "$gpu" --workload azure --requests "$requests" \
        --rate "${load#*:}" ${tokens:+--output-tokens $tokens --input-tokens $tokens} --no-run --json \
        >"$out/bound-${load%:*}.json" || failed=1
done
one once-knee 1000 scheduler=knee
one once-none 1000 scheduler=phase-multiplexed
one once-16 1000 max_requests=16
one load-knee 2.6 scheduler=knee
one load-none 2.6 scheduler=phase-multiplexed
one once-8 1000 max_requests=8
one once-32 1000 max_requests=32
python3 - "$out" <<'PYTHON' | tee "$out/table.txt"
import json, os, sys
out = sys.argv[1]
def read(name):
    try:
        return json.load(open(f"{out}/{name}.json"))
    except (OSError, ValueError):
        return None
print("| all at once, or at a rate | admission | | tok/s | of the bound | mean s | x the bound | p99 s |")
print("|---|---|---|--:|--:|--:|--:|--:|")
for load in "once", "load":
    bound = read(f"bound-{load}")
    bound = bound and bound["systems"][0]["bound"]
    for name in "knee", "none", "8", "16", "32":
        for side in "sim", "live":
            run = read(f"{load}-{name}-{side}")
            if run and bound:
                tok, mean = run["throughput_tok_s"], run["latency_s"]["mean"]
                print(f"| {load} | {name} | {side} | {tok:.1f} | {tok / bound['throughput_tok_s']:.3f} | {mean:.2f} "
                      f"| {mean / bound['latency_mean_s']:.2f} | {run['latency_s']['p99']:.2f} |")
PYTHON
rm -f "$out/live.db.lock"
exit $failed
