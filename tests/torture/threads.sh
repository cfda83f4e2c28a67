#!/bin/bash
# What runs on several threads, under the thread sanitizer: sweeps that record, figures, ranks.
#   tests/torture/threads.sh PROGRAM
set -eu
program=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TSAN_OPTIONS=halt_on_error=1:exitcode=66 OPENBLAS_NUM_THREADS=1
UNMASK_DATA=$(realpath "$(dirname "$0")/../..")
export UNMASK_DATA
cd "$folder"

printf '%s\n' '[sweep]' 'systems = dllm-serve, fast-dllm, focus, vllm-ar' 'gpus = l40s, h100' \
    'workloads = burst' 'rates = 0.5, 2' 'requests = 8' >sweep.ini
printf '%s\n' '[figure]' 'title = one' 'kind = lines' 'x_label = rate' 'y_label = s' \
    'query = SELECT system AS series, rate AS x, latency_s_p99 AS y FROM run' \
    '[run]' 'system = dllm-serve, fast-dllm, sdar' 'gpu = l40s' 'workload = burst' 'rate = 0.5, 1' 'requests = 5' >figure.ini

try() {
    "$program" "$@" >out 2>err || { cat err; echo "threads.sh: $*" >&2; exit 1; }
}
for threads in 1 4; do
    try sweep sweep.ini --json --db "s$threads.db" --levels steps -j $threads
    mv out "out$threads"
    try figure figure.ini -j $threads
    mv out "figure$threads"
done
cmp out1 out4
cmp figure1 figure4
try sweep sweep.ini --json --db s4.db -j 4
cmp out out1
for model in sdar-tiny llada2-tiny; do
    try run --backend cpu --clock virtual --system sdar --model $model --runtime unmask --requests 3 \
        --input-tokens 12 --output-tokens 8 --set tensor_parallel=2
done
try run --backend cpu --clock virtual --system sdar --model llada2-tiny --runtime unmask --requests 3 \
    --input-tokens 12 --output-tokens 8 --set tensor_parallel=2 --set expert_parallel=on
echo "threads: sweeps, figures and ranks without a race"
