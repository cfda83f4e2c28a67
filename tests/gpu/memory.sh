#!/bin/bash
# Whether any system that runs live touches memory on this card that it should not, or reads what nothing wrote: each of
# `list systems` serves a few requests with a small checkpoint under compute-sanitizer's memcheck and initcheck.
# Usage: memory.sh BUILD OUT [SYSTEM[:KEY=VALUE]...]; without systems all that run live. About an hour, one after the other.
# Needs BUILD/portable/unmask, BUILD/kernels/libunmask_cuda.so and compute-sanitizer (SANITIZER=PATH), which comes with
# the toolkit. TOOLS='memcheck' takes one tool. BACKEND=cpu runs the same without card and tool, to see what would run.
# OUTPUT, REQUESTS, MEMORY: tokens of an answer, requests, the share of the memory that is taken.
# Prints a table: errors by system and tool; OUT keeps each report. Status 1 where anything is found or does not run.
set -u
build=$1 out=$2
shift 2
here=$(dirname "$(realpath "$0")")
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)} CUDA_MODULE_LOADING=LAZY
unmask=${UNMASK:-$build/portable/unmask}
models=$UNMASK_DATA/experiments/train/models
sanitizer=${SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
on=(--backend cuda --library "$build/kernels/libunmask_cuda.so")
tools=${TOOLS:-memcheck initcheck} memory=${MEMORY:-0.01}
if [ "${BACKEND:-cuda}" = cpu ]; then
    on=(--backend cpu) tools=none memory=${MEMORY:-0.05}
elif [ ! -x "$sanitizer" ]; then
    echo "compute-sanitizer was not found: it comes with the toolkit (SANITIZER=PATH)" >&2
    exit 1
fi
mkdir -p "$out"
failed=0
load=(--workload burst --set workload.deadline=fixed --set workload.deadline.time=60s) # one system goes by deadlines

# TOOL ARGUMENTS...: the program, under a tool.
under() {
    tool=$1
    shift
    if [ "$tool" = none ]; then
        "$unmask" "$@"
    else
        "$sanitizer" --tool "$tool" --print-limit 20 --log-file "$out/$name-$tool.txt" "$unmask" "$@"
    fi
}

# TOOL: of the system, with the checkpoint. Prints the column's word.
check() {
    rm -f "$out/$name-$1.txt"
    under "$1" run --system "${name%%:*}" "${setting[@]}" --model "$models/$model" --weights "$models/$model" "${on[@]}" --clock virtual \
        --set memory_utilization="$memory" "${load[@]}" --requests "${REQUESTS:-4}" --rate 1000 \
        --output-tokens "${OUTPUT:-48}" --json >"$out/$name-$1.json" 2>"$out/$name-$1.err"
    status=$?
    errors=$(sed -n 's/^=* *ERROR SUMMARY: \([0-9]*\) error.*/\1/p' "$out/$name-$1.txt" 2>/dev/null)
    done=$(sed -n 's/^ *"completed": \([0-9]*\).*/\1/p' "$out/$name-$1.json" | head -n 1)
    if [ "$status" != 0 ] || [ "${done:-0}" = 0 ] || { [ "$1" != none ] && [ -z "$errors" ]; }; then
        echo "status $status"
    else
        echo "${errors:-ran}"
    fi
}

# The first checkpoint that the system takes.
model_of() {
    for model in llada-2m sdar-2m; do
        "$unmask" run --system "${1%%:*}" "${setting[@]}" --model "$models/$model" --roofline "${load[@]}" --requests 1 >/dev/null 2>&1 &&
            echo "$model" && return
    done
    echo none
}

[ $# != 0 ] || set -- $("$unmask" list systems --json | python3 -c '
import json, sys
print(*[row["name"] for row in json.load(sys.stdin)["systems"]["rows"] if row["live"] == "yes"])')
printf '%-24s %-10s' system checkpoint
printf ' %12s' $tools
printf ' %8s\n' seconds
for name; do
    setting=()
    case $name in *:*) setting=(--set "${name#*:}") ;; esac
    began=$(date +%s) model=$(model_of "$name")
    printf '%-24s %-10s' "$name" "$model"
    for tool in $tools; do
        word=$([ "$model" = none ] && echo 'no model' || check "$tool")
        case $word in 0 | ran) ;; *) failed=1 ;; esac
        printf ' %12s' "$word"
    done
    printf ' %8s\n' $(($(date +%s) - began))
done
exit $failed
