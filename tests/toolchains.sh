#!/usr/bin/env bash
# toolchains.sh BUILD TOOLKITS COMPILERS: builds the CUDA kernels and the GPU tests with each toolkit (folders with bin/nvcc) and each
# host compiler, for one architecture (CUDA_ARCH, 89 unless given), loads the library, and prints a table. No GPU is needed; none is used.
# A toolkit that refuses a compiler is said with its own words and is no failure. Logs stay in BUILD/toolchains.
set -euo pipefail
build=$1/toolchains toolkits=$2 compilers=$3 arch=${CUDA_ARCH:-89}
mkdir -p "$build"
red=0

# warnings LOG: how many sentences of the compilers, each once.
warnings() { { grep -E "warning[ :#]" "$1" | grep -v "nvlink warning : Skipping" || true; } | sort -u | wc -l; }
first_error() { { grep -m 1 -E '#error|error[ :]|was not found|does not' "$1" || tail -n 1 "$1"; } | sed 's/.*#error *//; s/^ *-- *//' | cut -c 1-90; }

try() { # try TOOLKIT COMPILER
    local log start=$SECONDS seconds says result library=$build/kernels/libunmask_cuda.so
    log=$build/$(echo "$1-$2" | tr -c 'a-zA-Z0-9\n' _).log
    rm -rf "$build/kernels" "$build/tests/gpu"
    if make -j"$(nproc)" BUILD="$build" CUDA="$1" NVCC_CCBIN="$2" CUDA_ARCH="$arch" "$library" >"$log" 2>&1; then
        seconds=$((SECONDS - start)) result=builds
        make -j"$(nproc)" BUILD="$build" CUDA="$1" NVCC_CCBIN="$2" CUDA_ARCH="$arch" kernels >>"$log" 2>&1 || result='tests do not link'
        case $(readelf -d "$library") in *RUNPATH*"\$ORIGIN:/"*) ;; *) result='has no RUNPATH' ;; esac
        says=$(env -u LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES= "$build/unmask" calibrate --describe --backend cuda --library "$library" 2>&1 || true)
        case $says in
        *'no NVIDIA driver'* | *'no CUDA device'* | *'driver is too old'*) ;;
        *) result="does not load: $says" ;;
        esac
        [ "$result" = builds ] || red=1
    else
        seconds=- result=$(first_error "$log")
        grep -q 'unsupported GNU version' "$log" || red=1
    fi
    echo "$("$1/bin/nvcc" --version | sed -n 's/.*, V//p')|$(du -shL "$1" 2>/dev/null | cut -f 1)|$("$2" -dumpfullversion)|$seconds|$(warnings "$log")|$result" \
        >>"$build/table"
    tail -n 1 "$build/table" | tr '|' ' '
}

make -j"$(nproc)" BUILD="$build" "$build/unmask" >"$build/program.log" 2>&1 || { tail "$build/program.log"; exit 1; }
: >"$build/table"
for toolkit in $toolkits; do
    [ -x "$toolkit/bin/nvcc" ] || { echo "toolchains: $toolkit has no bin/nvcc" >&2; exit 1; }
    for compiler in $compilers; do
        command -v "$compiler" >/dev/null || { echo "toolchains: there is no $compiler" >&2; exit 1; }
        try "$toolkit" "$compiler"
    done
done
printf '\n%-10s %-6s %-7s %-8s %-9s %s\n' nvcc size gcc seconds warnings ''
while IFS='|' read -r nvcc size gcc seconds warned result; do
    printf '%-10s %-6s %-7s %-8s %-9s %s\n' "$nvcc" "$size" "$gcc" "$seconds" "$warned" "$result"
done <"$build/table"
exit "$red"
