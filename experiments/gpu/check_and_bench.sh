#!/bin/bash
# Checks every kernel against its reference implementation, the device through its table and that co-batched rows change
# no bit where they must not, runs compute-sanitizer over small shapes, then times the mapping of memory and
# the kernels beside their peers.
# Usage: check_and_bench.sh BUILD OUT checks|sanitize|bench|all [PIECE...]
# Needs the kernels built (make kernels) and, for the bench, python3 with PyTorch.
set -u
build=$1 out=$2 what=$3
shift; shift; shift
here=$(dirname "$0")
# cuBLASLt may come with PyTorch only.
libs=$(python3 -c 'import glob, os, torch
print(":".join(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/cu13/lib")))')
export LD_LIBRARY_PATH=${libs}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu --format=csv,noheader
failed=0
if [ "$what" != bench ]; then
    rm -f "$out/checks.txt"
    for test in test_kernels test_block_kernels test_moe test_decode test_smooth test_device test_device_kernels test_device_products test_batch_invariance; do
        timeout 120 "$build/tests/gpu/$test" 2>&1 | tee -a "$out/checks.txt"
        [ "${PIPESTATUS[0]}" = 0 ] || failed=1
    done
    timeout 120 "$build/tests/gpu/test_long" cuda "$build/kernels/libunmask_cuda.so" 2>&1 \
        | tee -a "$out/checks.txt"
    [ "${PIPESTATUS[0]}" = 0 ] || failed=1
fi
if [ "$what" = all ] || [ "$what" = sanitize ]; then
    for tool in memcheck racecheck initcheck; do
        for test in test_kernels test_block_kernels test_moe test_decode test_smooth test_device test_device_kernels test_device_products test_batch_invariance; do
            timeout 150 compute-sanitizer --tool $tool --error-exitcode 9 \
                "$build/tests/gpu/$test" 1 small >"$out/$tool-$test.txt" 2>&1 || failed=1
            echo "$tool $test: $(tail -1 "$out/$tool-$test.txt")"
        done
    done
fi
if [ "$what" = all ] || [ "$what" = bench ]; then
    "$build/tests/gpu/bench_vmm" cuda "$build/kernels/libunmask_cuda.so" "$out/vmm.csv" 2>&1 \
        | tee "$out/vmm.txt"
    [ "${PIPESTATUS[0]}" = 0 ] || failed=1
    "$build/tests/gpu/bench_decode" 2>&1 | tee "$out/decode.txt"
    [ "${PIPESTATUS[0]}" = 0 ] || failed=1
    python3 "$here/bench_kernels.py" "$build/kernels/libunmask_cuda.so" "$out/kernels.csv" "$@" \
        2>&1 | tee "$out/bench.txt"
    [ $# = 0 ] && python3 "$here/bench_block.py" "$build/kernels/libunmask_cuda.so" \
        "$out/block.csv" 2>&1 | tee "$out/bench-block.txt"
fi
exit $failed
