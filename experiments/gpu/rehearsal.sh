#!/bin/bash
# What the owner of another card will meet, on a borrowed one in its guise (tests/gpu/guise.c): every GPU suite,
# calibrations to their end, one that is interrupted and goes on, what is refused before a kernel runs, and
# configurations that nobody tuned on, live beside their simulation by that calibration.
# Usage: rehearsal.sh BUILD OUT GUISE PART...
# BUILD is where `make guise portable` left guise/kernels, guise/tests/gpu and portable/unmask; GUISE: rtx4090,
# l40s, rtx3090, l4. SMS=32 lets the card run on so many multiprocessors, which makes it slow; MINUTES=6,
# REQUESTS=24 and RUNS='dllm-serve*' (which configurations) may be set.
#
# Parts: suites, calibrate:MODEL, continue:MODEL (interrupted after 25 s, then to its end), refuse:MODEL, live,
# simulate, table (the last three as decisions.sh has them, of LLaDA-8B).
set -u
build=$1 out=$2 word=$3
shift 3
here=$(dirname "$0")
libs=$(python3 -c 'import glob, os, torch
print(":".join(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/cu13/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)} UNMASK_GUISE=$word
[ -z "${SMS:-}" ] || export UNMASK_GUISE_SMS=$SMS
guise=$build/guise library=$build/guise/kernels/libunmask_cuda.so
mkdir -p "$out" "$guise/portable"
ln -sf "$(cd "$build" && pwd)"/portable/* "$guise/portable/"
unmask=$guise/portable/unmask
failed=0

gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
nccl=$(python3 -c 'import glob, os, torch
print(*glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/nccl/lib"))' 2>/dev/null)

# NAME TEST ARGUMENTS...
suite() {
    name=$1
    shift
    timeout 180 "$@" >"$out/$name.txt" 2>&1
    status=$?
    [ $status = 0 ] || failed=1
    echo "$name: status $status, $(tail -n 1 "$out/$name.txt")"
}

# Kernels of Hopper alone are tests of their own, which say that they are skipped. Two GPUs in a guise do not reach each
# other's memory: they are ranks by NCCL, and refused without it.
suites() {
    for test in "$guise"/tests/gpu/test_*; do
        name=$(basename "$test")
        case $name in
        *.o | *.d) ;;
        test_ranks)
            [ "$gpus" -gt 1 ] || { echo "$name: left out, it needs two GPUs"; continue; }
            UNMASK_GUISE_NCCL=off suite "$name-refused" "$test" "$library" 2 refused
            LD_LIBRARY_PATH=$nccl:$LD_LIBRARY_PATH suite "$name-nccl" "$test" "$library" 2 nccl
            ;;
        test_engine) suite "$name" "$test" "$library" ;;
        test_long | test_swap) suite "$name" "$test" cuda "$library" ;;
        *) suite "$name" "$test" ;;
        esac
    done
}

# MODEL NAME [SECONDS]: interrupted after so many.
calibrate() {
    start=$SECONDS
    timeout ${3:+-s INT} "${3:-560}" "$unmask" calibrate --backend cuda --library "$library" --model "$1" --clocks \
        --minutes "${MINUTES:-6}" --max-tokens "${TOKENS:-16384}" ${QUICK:-} --json --out "$out/$2-$1.csv" \
        >"$out/$2-$1.json" 2>"$out/$2-$1.err"
    status=$?
    echo "calibrate $1 ($2): status $status, $((SECONDS - start)) s; $(tail -n 1 "$out/$2-$1.err")"
    grep -h 'about\|beware\|left out' "$out/$2-$1.err"
    [ -s "$out/$2-$1.json" ] && python3 - "$out/$2-$1.json" <<'PYTHON'
import json, sys
run = json.load(open(sys.argv[1]))
print(f"  said {run['estimated_s']:.0f} s, took {run['took_s']:.0f} s; {run['points']} points in {run['rounds']} rounds; "
      f"{run['steps_fitted']} of {run['steps_fittable']} steps in the fit, {run['steps_left_out']} left out; "
      + "; ".join(f"{name} {100 * run[name]['median']:.2f} %, {100 * run[name]['p95']:.2f} %" for name in ("held_out", "mixed")))
PYTHON
    return $status
}

for part; do
    model=${part#*:}
    case $part in
    suites) suites ;;
    calibrate:*) calibrate "$model" fresh || failed=1 ;;
    continue:*)
        MINUTES=1 QUICK=--quick calibrate "$model" continued 25 && failed=1
        MINUTES=1 QUICK=--quick calibrate "$model" continued || failed=1
        ;;
    refuse:*)
        "$unmask" calibrate --backend cuda --library "$library" --model "$model" --out "$out/refused.csv" 2>&1 && failed=1
        "$unmask" run --backend cuda --library "$library" --model "$model" --requests 4 2>&1 && failed=1
        ;;
    live | again | simulate) "$here/decisions.sh" "$part" "$guise" "$out" "$word" grid || failed=1 ;;
    table) "$here/decisions.sh" table "$guise" "$out" || failed=1 ;;
    *) echo "there is no part '$part'" >&2; failed=1 ;;
    esac
done
exit $failed
