#!/bin/bash
# Block diffusion live on this GPU: SDAR-8B's shape with random weights and forced decode counts,
# blocks of 32, LMDeploy's baseline and FOCUS, with one step and several a visit of the host, over
# the batch size; each run on the GPU, simulated with a measured profile (drawn: -sim; with what the
# run committed and kept: -decided), and its recorded steps priced anew.
# Usage: block_diffusion.sh BUILD OUT PROFILE [GPU [BATCH...]]
# Needs BUILD/portable/unmask and BUILD/kernels/libunmask_cuda.so; PROFILE as
# `unmask calibrate --model sdar-8b` wrote it.
set -u
build=$1 out=$2 profile=$3 gpu=${4:-h200}
shift 3
[ $# = 0 ] || shift
batches=${*:-32 64 128 256}
here=$(dirname "$0")
libs=$(python3 -c 'import glob, os, torch
print(":".join(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/cu13/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
unmask="$build/portable/unmask"
cuda=(--backend cuda --library "$build/kernels/libunmask_cuda.so")
mkdir -p "$out"
failed=0

# SYSTEM BATCH: as many requests as the batch holds, all there from the start, of 256 prompt and 64
# output tokens; 16 denoising steps a block commit 2 tokens each, about what SDAR's do on ShareGPT (2.3).
one() {
    common=(--system "$1" --model sdar-8b --gpu "$gpu" --profile "$profile" --workload burst
        --requests "$2" --rate 100000 --input-tokens 256 --output-tokens 64 --set block_tokens=32
        --set steps_per_block=16 --decoder fixed --set max_requests="$2" --set max_batched_tokens=8192)
    name="$out/$1-$2" db="$out/$1-$2.db"
    rm -f "$db"
    "$unmask" run "${common[@]}" --json >"$name-sim.json" || failed=1
    "$unmask" run "${common[@]}" "${cuda[@]}" --db "$db" --levels steps --decode-out "$name-decode.csv" --json >"$name-live.json" || failed=1
    "$unmask" replay --db "$db" --run 1 --steps "$name-steps.csv" >"$name-steps.txt" || failed=1
    rm -f "$db"
    # What random weights are sure of no process says: simulated with the run's own decisions.
    "$unmask" run "${common[@]}" --decode "$name-decode.csv" --json >"$name-decided.json" || failed=1
    python3 - "$name" "$1" "$2" <<'PYTHON'
import json, sys
name, system, batch = sys.argv[1:]
sim, live = (json.load(open(f"{name}-{kind}.json")) for kind in ("decided", "live"))
def both(key):
    return sim[key], live[key], 100 * (sim[key] / live[key] - 1)
print(f"{system:>10} batch {batch:>3}  tokens/s simulated %8.0f live %8.0f (%+5.1f %%)" % both("throughput_tok_s"),
      " makespan %.3f %.3f s (%+5.1f %%)" % both("makespan_s"),
      " run for a token %.2f %.2f" % (sim["block_redundancy"] or 0, live["block_redundancy"] or 0),
      " KV peaks equal" if sim["kv_peak_bytes"] == live["kv_peak_bytes"] else " KV peaks differ")
PYTHON
    sed -n '/predicted/,$p' "$name-steps.txt" | head -24
}

for batch in $batches; do
    one lmdeploy "$batch"
    one focus "$batch"
    one focus-multiloop "$batch"
done
exit $failed
