#!/bin/bash
# fp8 on this GPU. Tokens: what two trained models answer in each form, here and on the CPU. LLaDA-8B (random weights):
# whole steps beside bf16's, a calibration of its operators, and a live run beside its simulation, with what memory both say.
# Usage: fp8.sh BUILD OUT [tokens|steps|live|all] [GPU [BATCHxTOKENS...]]
# Environment: prompts (of the trained models, default: 32), forms, live_forms, rounds, minutes, max_tokens,
# how ('--clocks' calibrates the card's clocks, too, in two minutes).
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

# MODEL SYSTEM BACKEND NAME SETTING...
answers() {
    model=$1 system=$2 backend=$3 name=$4 wide=f32 own=(--gpu cpu)
    shift 4
    [ "$backend" = cpu ] || { wide=bf16 own=(--library "$build/kernels/libunmask_cuda.so" --gpu "$gpu"); }
    sets=()
    for set in "$@"; do
        sets+=(--set "${set//WIDE/$wide}")
    done
    timeout 60 "$unmask" run --backend "$backend" "${own[@]}" --clock virtual --weights "$models/$model" \
        --workload "$out/hops.jsonl" --output-tokens 256 --system "$system" --decoder threshold \
        --set decoder.threshold=0.9 --set block_tokens=32 --set steps_per_block=32 --set early_stop=block \
        --set max_requests=64 --set storage.wide=$wide "${sets[@]}" --outputs "$out/$model-$name-$backend.out" --json \
        </dev/null >"$out/$model-$name-$backend.json" 2>"$out/$model-$name-$backend.err" || { failed=1; tail -1 "$out/$model-$name-$backend.err"; }
}

if [ "$what" = tokens ] || [ "$what" = all ]; then
    models=$here/../train/models
    head -n "${prompts:-32}" "$here/../train/prompts/hops.jsonl" >"$out/hops.jsonl"
    for model in llada-2m sdar-2m; do
        system=fast-dllm
        [ $model = llada-2m ] || system=sdar
        while read -r name sets; do
            [ $model$name != sdar-2mhead ] || continue # its head is its embedding
            # shellcheck disable=SC2086
            answers $model $system cpu "$name" $sets &
            # shellcheck disable=SC2086
            answers $model $system cuda "$name" $sets
            wait
        done <<'FORMS'
none storage.weights=WIDE
w8a8 storage.weights=fp8
w8a16 storage.weights=fp8 storage.activations=WIDE
w8a8-channel storage.weights=fp8-channel
head storage.weights=WIDE storage.head=fp8 storage.activations=fp8
cache storage.weights=WIDE storage.cache=fp8
all storage.weights=fp8 storage.cache=fp8
FORMS
    done
    python3 - "$out" <<'PYTHON' || failed=1
import glob, json, os, statistics, sys
print(f"{'model':>9} {'form':>13} {'prompts':>8} {'right, CPU':>11} {'right, GPU':>11} {'equal':>6} {'first other token, median':>26}")
for path in sorted(glob.glob(f"{sys.argv[1]}/*-cuda.out")):
    model, form = os.path.basename(path)[: -len("-cuda.out")].split("m-", 1)
    try:
        sides = [[json.loads(line) for line in open(f"{path[: -len('cuda.out')]}{side}.out")] for side in ("cpu", "cuda")]
    except OSError as error:
        print(error)
        continue
    cpu, gpu = ({row["id"]: row for row in side} for side in sides)
    apart = []
    for name, row in cpu.items():
        a, b = row["output"], gpu[name]["output"]
        if a != b:
            apart.append(next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b))))
    right = [sum(row["right"] for row in side.values()) for side in (cpu, gpu)]
    print(f"{model + 'm':>9} {form:>13} {len(cpu):8d} {right[0]:11d} {right[1]:11d} {len(cpu) - len(apart):6d}"
          f" {statistics.median(apart) if apart else '':>26}")
PYTHON
fi

# FORM BATCH TOKENS: one step over whole canvases, every position decoded.
step() {
    # shellcheck disable=SC2046
    timeout 60 "$unmask" explain "${cuda[@]}" --gpu "$gpu" --system vanilla --model llada-8b --refresh "$2" \
        --input-tokens $(($3 / 2)) --output-tokens $(($3 - $3 / 2)) --set logit_scope=queries \
        --set runtime.fused_head=on --set context_tokens=4096 --set max_requests="$2" $(types "$1") \
        --rounds "${rounds:-8}" --json >"$out/step-$1-$2x$3.json" || failed=1
}

if [ "$what" = steps ] || [ "$what" = all ]; then
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
    timeout 240 "$unmask" calibrate "${cuda[@]}" --model llada-8b --gpu "$gpu" $(types "$1") ${how:---quick} \
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

if [ "$what" = live ] || [ "$what" = all ]; then
    for form in ${live_forms:-fp8}; do
        live "$form"
    done
fi
exit $failed
