#!/bin/bash
# How right the simulator is on this GPU: a saturating burst under three systems, simulated with a
# measured profile, replayed on the GPU step by step, and run freely on it.
# Usage: fidelity.sh BUILD OUT PROFILE [GPU [SYSTEM[:KEY=VALUE[,KEY=VALUE]...]...]]
# Settings go with a system: dllm-serve:replicas=2 takes two GPUs. With two, router=round-robin keeps apart how fast the
# cards are and which of them takes a request, which a router by load decides by milliseconds.
# A live run beside others, on a slowed card or of a program that was stopped is left out and fails; SHARED=1 takes it.
# Needs BUILD/portable/unmask and BUILD/kernels/libunmask_cuda.so; PROFILE as `unmask calibrate` wrote it.
set -u
build=$1 out=$2 profile=$3 gpu=${4:-h200}
shift 3
[ $# = 0 ] || shift
systems=${*:-dllm-serve fast-dllm vanilla}
here=$(dirname "$0")
libs=$(python3 -c 'import glob, os, torch
print(":".join(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/cu13/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
unmask="$build/portable/unmask"
cuda=(--backend cuda --library "$build/kernels/libunmask_cuda.so")
failed=0

# SYSTEM[:KEY=VALUE] REQUESTS RATE
one() {
    common=(--system "${1%%:*}" --model llada-8b --gpu "$gpu" --profile "$profile" --workload burst --requests "$2" --rate "$3")
    settings=()
    case $1 in *:*) IFS=, read -r -a settings <<<"${1#*:}" ;; esac
    for setting in "${settings[@]}"; do common+=(--set "$setting"); done
    db="$out/$1.db"
    rm -f "$db"
    "$unmask" run "${common[@]}" --db "$db" --levels steps --json >"$out/$1-sim.json" || failed=1
    "$unmask" replay --db "$db" --run 1 "${cuda[@]}" --operators 25 --steps "$out/$1-steps.csv" \
        >"$out/$1-replay.txt" || failed=1
    "$unmask" run "${common[@]}" "${cuda[@]}" --db "$db" --levels steps --json >"$out/$1-live.json" || failed=1
    "$unmask" replay --db "$db" --run 2 >"$out/$1-record.txt" || failed=1
    rm -f "$db"
    python3 - "$out" "$1" <<'PYTHON' || failed=1
import json, os, sys
out, name = sys.argv[1:]
sim, live = (json.load(open(f"{out}/{name}-{kind}.json")) for kind in ("sim", "live"))
spoils = [w["text"] for w in live["warnings"] if w["code"] in ("device-shared", "device-slowed", "process-stopped")]
for text in spoils:
    print(f"{name:>12} {text}")
if spoils and os.environ.get("SHARED") != "1":
    sys.exit(f"{name:>12} is left out: SHARED=1 takes such runs")
def line(what, a, b):
    error = f"{100 * (a / b - 1):+7.2f} %" if b else "none" if a == b else "all of it"
    print(f"{name:>12} {what:<22} simulated {a:12.6g} live {b:12.6g} error {error}")
line("makespan, s", sim["makespan_s"], live["makespan_s"])
line("throughput, tok/s", sim["throughput_tok_s"], live["throughput_tok_s"])
line("mean latency, s", sim["latency_s"]["mean"], live["latency_s"]["mean"])
line("p99 latency, s", sim["latency_s"]["p99"], live["latency_s"]["p99"])
line("KV peak, bytes", sim["kv_peak_bytes"], live["kv_peak_bytes"])
line("activation peak, bytes", sim["activation_peak_bytes"], live["activation_peak_bytes"])
PYTHON
    sed -n '/predicted/,$p' "$out/$1-replay.txt" | head -60
}

for system in $systems; do
    case $system in
    vanilla) one vanilla 6 10 ;;
    *) one "$system" 40 10 ;;
    esac
done
exit $failed
