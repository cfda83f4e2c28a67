#!/bin/bash
# Steps of the released LLaDA-8B programs on this GPU: about four minutes on an H200.
# Usage: released.sh OUT FAST_DLLM DLLM_CACHE SPARSE_DLLM [early|held-out]; the three are checkouts of
# NVlabs/Fast-dLLM (24cc59e7), maomaocun/dLLM-cache (17235bff) and OpenMOSS/Sparse-dLLM (3fd8986b).
#        released.sh OUT serve DLLM_SERVE [REQUESTS]: dLLM-Serve's loop and a serving run of its engine, within
# 400 s; a checkout of chosen-ox/dLLM-Serve (aefbf0a2) and what `unmask trace convert burst --requests 300
# --out REQUESTS` wrote. released_serve.py says what stands in for packages and what each file holds.
set -eu
if [ "$2" = serve ]; then
    exec python3 "$(dirname "$0")/released_serve.py" "$1/dllm-serve" --dllm-serve "$3" ${4:+--requests "$4"}
fi
out=$1 fast=$2 cache=$3 sparse=$4 only=${5:-early}
program=$(dirname "$0")/released.py
mkdir -p "$out"
python3 "$program" "$out/fast" --fast-dllm "$fast" --only "$only"
[ "$only" = early ] || exit 0
python3 "$program" "$out/sparse" --sparse-dllm "$sparse"
python3 "$program" "$out/cache" --dllm-cache "$cache"
