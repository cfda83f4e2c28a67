#!/bin/bash
# LLaDA-8B in fp8 on this GPU (random weights): whole steps beside bf16's, a calibration of its operators, and a live
# run beside its simulation, with what memory both say.
# Usage: fp8.sh BUILD OUT [steps|live|all] [GPU [BATCHxTOKENS...]]
# Needs BUILD/portable/unmask and BUILD/kernels/libunmask_cuda.so. About 2 minutes.
set -u
build=$1 out=$2 what=${3:-all} gpu=${4:-h200}
shapes=(1x32 1x512 1x2048 8x512)
[ $# -le 4 ] || shapes=("${@:5}")
forms=${forms:-bf16 fp8 fp8-channel}
here=$(dirname "$0")
libs=$(python3 -c 'import glob, os, torch
print(":".join(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/*/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
unmask="$build/portable/unmask"
cuda=(--backend cuda --library "$build/kernels/libunmask_cuda.so")
mkdir -p "$out"
failed=0

# FORM: the settings of it.
types() {
    case $1 in
    w8a16) echo --set storage.weights=fp8 --set storage.activations=bf16 ;;
    *-cache) echo --set storage.weights="${1%-cache}" --set storage.cache=fp8 ;;
    *) echo --set storage.weights="$1" ;;
    esac
}

# FORM BATCH TOKENS: one step over whole canvases, every position decoded.
step() {
    # shellcheck disable=SC2046
    timeout 60 "$unmask" explain "${cuda[@]}" --gpu "$gpu" --system vanilla --model llada-8b --refresh "$2" \
        --input-tokens $(($3 / 2)) --output-tokens $(($3 - $3 / 2)) --set logit_scope=queries \
        --set runtime.fused_head=on --set context_tokens=4096 --set max_requests="$2" $(types "$1") \
        --rounds "${rounds:-8}" --json >"$out/step-$1-$2x$3.json" || failed=1
}

if [ "$what" != live ]; then
    for form in $forms; do
        for shape in "${shapes[@]}"; do
            step "$form" "${shape%x*}" "${shape#*x}"
        done
    done
    python3 - "$out" "${shapes[*]}" "$forms" <<'PYTHON' || failed=1
import json, os, sys
out, shapes, forms = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
print(f"{'step':>8} {'form':>12} {'wall, ms':>9} {'device':>9} {'of bf16':>8} {'priced':>9}")
for shape in shapes:
    base = None
    for form in forms:
        try:
            step = json.load(open(f"{out}/step-{form}-{shape}.json"))
        except (OSError, ValueError):
            continue
        measured = step["measured"]
        base = base or measured["wall_ms"]
        print(f"{shape:>8} {form:>12} {measured['wall_ms']:9.3f} {measured['device_ms']:9.3f}"
              f" {measured['wall_ms'] / base:8.3f} {step['device_ms']:9.3f}")
        if form != "bf16":
            for op in sorted(step["operators"], key=lambda op: -(op["measured_ms"] or 0))[:8]:
                print(f"{'':>21} {op['operator']:<30} {op['times']:>3} x {op['measured_ms'] or 0:8.3f} ms"
                      f" priced {op['ms']:8.3f}")
PYTHON
fi

# FORM: calibrates it, and serves 40 requests live and simulated with what was measured.
live() {
    profile="$out/$1.csv" began=$(date +%s)
    # shellcheck disable=SC2046
    timeout 90 "$unmask" calibrate "${cuda[@]}" --model llada-8b --gpu "$gpu" $(types "$1") --quick \
        --minutes "${minutes:-0.4}" --max-tokens "${max_tokens:-4096}" --shared --out "$profile" >"$out/$1-calibrate.txt" || failed=1
    tail -25 "$out/$1-calibrate.txt"
    echo "$1 calibrated in $(($(date +%s) - began)) s: $(grep -c ',fp8' "$profile") rows in fp8"
    common=(--system dllm-serve --model llada-8b --gpu "$gpu" --profile "$profile" --workload burst --requests 40 --rate 10
        --set max_batched_tokens="${max_tokens:-4096}")
    # shellcheck disable=SC2046
    timeout 60 "$unmask" run "${common[@]}" $(types "$1") --json >"$out/$1-sim.json" || failed=1
    # shellcheck disable=SC2046
    timeout 60 "$unmask" run "${common[@]}" $(types "$1") "${cuda[@]}" --json >"$out/$1-live.json" || failed=1
    python3 - "$out" "$1" <<'PYTHON' || failed=1
import json, sys
out, name = sys.argv[1:]
sim, live = (json.load(open(f"{out}/{name}-{kind}.json")) for kind in ("sim", "live"))
for key in ("makespan_s", "steps", "throughput_tok_s", "kv_peak_bytes", "activation_peak_bytes"):
    print(f"{name:>12} {key:<22} simulated {sim[key]:14.6g} live {live[key]:14.6g} ({100 * (sim[key] / live[key] - 1):+.2f} %)")
means = [1e3 * run["makespan_s"] / run["steps"] for run in (sim, live)]
print(f"{name:>12} {'mean step, ms':<22} simulated {means[0]:14.6g} live {means[1]:14.6g} ({100 * (means[0] / means[1] - 1):+.2f} %)")
engine = live["engine"]
print(f"{name:>12} {'memory, bytes':<22} planned   {engine['planned_bytes']:14d} metered {engine['metered_bytes']:11d}"
      f" beside it {engine['side_bytes']}")
PYTHON
}

[ "$what" = steps ] || for form in ${live_forms:-fp8}; do
    live "$form"
done
exit $failed
