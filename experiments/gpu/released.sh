#!/bin/bash
# Steps of the released LLaDA-8B programs on this GPU: about four minutes on an H200.
# Usage: released.sh OUT FAST_DLLM DLLM_CACHE SPARSE_DLLM [early|held-out]; the three are checkouts of
# NVlabs/Fast-dLLM (24cc59e7), maomaocun/dLLM-cache (17235bff) and OpenMOSS/Sparse-dLLM (3fd8986b).
set -eu
out=$1 fast=$2 cache=$3 sparse=$4 only=${5:-early}
program=$(dirname "$0")/released.py
mkdir -p "$out"
python3 "$program" "$out/fast" --fast-dllm "$fast" --only "$only"
[ "$only" = early ] || exit 0
python3 "$program" "$out/sparse" --sparse-dllm "$sparse"
python3 "$program" "$out/cache" --dllm-cache "$cache"
