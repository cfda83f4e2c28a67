#!/bin/bash
# The longest canvases live: one step of each system at the L_max that `unmask plan lmax` predicts for a
# card whose memory is emulated, and the refusal of one page (64 tokens) more.
#
#   experiments/gpu/long_canvases.sh BUILD OUT [SYSTEM:GPU:LAYERS]...
#
# LAYERS 0 runs the whole model. Attention grows with the square of the canvas: 32 layers take
# minutes a step on the largest canvases, so by default those run one layer of LLaDA-8B. The weights
# of the layers left out stay reserved (`--set layers=N`) and every layer uses the same workspace,
# so that workspace and L_max are those of the whole model. A program's outputs go to OUT.
set -u
build=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- mosaic:rtx4090:0 mosaic:a100-40g:1 mosaic:l40s:1 \
    mosaic-beyond:rtx4090:1 mosaic-beyond:a100-40g:1 mosaic-beyond:l40s:1
unmask=$build/portable/unmask
mkdir -p "$out"

# Prints the value under a key of a JSON file, keys apart by dots.
value() {
    python3 -c 'import functools, json, sys
print(functools.reduce(lambda o, k: o[k], sys.argv[2].split("."), json.load(open(sys.argv[1]))))' "$@"
}

# A step over $4 tokens, half of them prompt, as JSON on standard output.
step() {
    "$unmask" explain --backend cuda --library "$build/kernels/libunmask_cuda.so" --system "$1" \
        --model llada-8b --gpu "$2" --set layers="$3" --set runtime.engine=on \
        --set logit_scope=generation --set beyond_positions=on --set context_tokens="$4" \
        --set max_batched_tokens="$4" --refresh 1 --prompt $(($4 / 2)) --output $(($4 / 2)) --once \
        --json --weights random:1
}

csv=$out/long-canvases.csv
echo "system,gpu,layers,l_max,step_s,planned_bytes,used_bytes,own_bytes,refused_tokens,refused" >"$csv"
failed=0
for run in "$@"; do
    IFS=: read -r system gpu layers <<<"$run"
    name=$out/$system-$gpu
    if ! "$unmask" plan lmax --system "$system" --model llada-8b --gpu "$gpu" --set layers="$layers" \
        --json >"$name-lmax.json"; then
        failed=1
        continue
    fi
    tokens=$(value "$name-lmax.json" l_max)
    if ! step "$system" "$gpu" "$layers" "$tokens" >"$name.json" 2>"$name.txt"; then
        echo "$run: $(tail -1 "$name.txt")"
        failed=1
        continue
    fi
    refused=no
    if ! step "$system" "$gpu" "$layers" $((tokens + 64)) >/dev/null 2>"$name-refused.txt" &&
        grep -q 'rejects a request .* activation' "$name-refused.txt"; then
        refused=yes
    fi
    planned=$(value "$name.json" measured.planned_bytes)
    used=$(value "$name.json" measured.workspace_bytes)
    seconds=$(python3 -c 'import sys; print("%.2f" % (float(sys.argv[1]) / 1e3))' \
        "$(value "$name.json" measured.wall_ms)")
    own=$(value "$name.json" measured.own_bytes)
    echo "$system,$gpu,$layers,$tokens,$seconds,$planned,$used,$own,$((tokens + 64)),$refused" >>"$csv"
    [ "$refused" = yes ] && [ "$planned" = "$used" ] || failed=1
    tail -1 "$csv"
done
python3 - "$csv" <<'PYTHON'
import csv, sys
for row in csv.DictReader(open(sys.argv[1])):
    print("%-14s %-9s layers %2s: %8s tokens ran in %7s s, peak %s bytes, %s; %s tokens refused: %s"
          % (row["system"], row["gpu"], row["layers"], row["l_max"], row["step_s"],
             row["used_bytes"], "as planned" if row["used_bytes"] == row["planned_bytes"]
             else "PLANNED " + row["planned_bytes"], row["refused_tokens"], row["refused"]))
PYTHON
exit $failed
