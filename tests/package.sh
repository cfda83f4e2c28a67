#!/usr/bin/env bash
# Installs under a prefix, moves it, and makes a Debian package, and tries both as a user would: away from the source tree,
# with an empty environment. `make package-test` runs it.
set -euo pipefail
build=$(realpath "${1:-build}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "package: $*" >&2; exit 1; }

make --no-print-directory BUILD="${1:-build}" install PREFIX=/usr/local DESTDIR="$scratch/staged" >/dev/null
mv "$scratch/staged/usr/local" "$scratch/moved"
dpkg-deb -x "$build"/unmask_*.deb "$scratch/root"
[ "$(dpkg-deb -f "$build"/unmask_*.deb Package)" = unmask ] || fail "the package has another name"

try() { # try PREFIX DATA-FOLDER
    local prefix=$1
    inside() { (cd "$scratch" && env -i HOME="$scratch" PATH="$prefix/bin:/usr/bin:/bin" "$@"); }
    inside unmask --version | grep -qx "data from $prefix/share/unmask" || fail "$prefix: data of another folder"
    inside unmask compare --gpu l40s --requests 40 --systems fast-dllm,dllm-serve --json 2>/dev/null >"$scratch/installed.json"
    UNMASK_DATA="$prefix/share/unmask" "$build/unmask" compare --gpu l40s --requests 40 --systems fast-dllm,dllm-serve --json \
        2>/dev/null | cmp - "$scratch/installed.json" || fail "$prefix: other results than the build's"
    for figure in mosaic-fig9-measured quality-retention vllm-real-table; do
        inside unmask figure "$figure" >/dev/null 2>&1 || fail "$prefix: figure $figure lacks a file"
    done
    inside unmask run --requests 20 --db "$scratch/r.db" >/dev/null 2>&1
    inside unmask report "$scratch/r.db" --out "$scratch/r.html" >/dev/null 2>&1 || fail "$prefix: no report"
    rm "$scratch/r.db"
    inside unmask generate --backend cpu --weights "$prefix/share/unmask/experiments/train/models/sdar-2m" --ids 2,5,9 \
        --output-tokens 8 >/dev/null 2>&1 || fail "$prefix: generate"
    for template in "$prefix"/share/doc/unmask/examples/template_*.c; do
        inside cc -std=c11 -shared -fPIC -I"$prefix/include/unmask" -o "$scratch/mine.so" "$template" || fail "$template: headers"
        inside unmask check-plugin "$scratch/mine.so" >/dev/null || fail "$template: check-plugin"
    done
    # What the headers define links, in C and in C++.
    (cd "$prefix/include/unmask" && find . -name '*.h') | sed 's/.*/#include "&"/' >"$scratch/all.c"
    for language in 'c -std=c11' 'c++ -std=c++17'; do
        # shellcheck disable=SC2086 # two words
        inside cc -x $language -fkeep-inline-functions -shared -fPIC -Wl,-z,defs -I"$prefix/include/unmask" \
            -o "$scratch/all.so" "$scratch/all.c" || fail "$prefix: $language: an inline function needs what no plug-in can link"
    done
    inside cc -std=c11 -aux-info "$scratch/all.txt" -fsyntax-only -I"$prefix/include/unmask" "$scratch/all.c"
    ! grep '/include/unmask/.*extern' "$scratch/all.txt" || fail "$prefix: headers declare what no plug-in can link"
    for page in "$prefix"/share/man/man1/*; do
        gzip -dc "$page" | LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings=all -l - 2>&1 >/dev/null | grep . && fail "$page"
    done
    # A word is completed as bash does it.
    completed() {
        inside bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _unmask; echo "${COMPREPLY[*]}"' \
            _ "$prefix/share/bash-completion/completions/unmask" "$@"
    }
    [ "$(completed unmask capac)" = capacity ] || fail "completion of a command"
    [ "$(completed unmask plan lm)" = lmax ] || fail "completion of a verb"
    completed unmask run --gpu h | grep -qw h200 || fail "completion of a name"
    completed unmask compare --systems dllm-serve,foc | grep -qw dllm-serve,focus || fail "completion of a list"
    completed unmask plan lmax --prompt | grep -qx -- --prompt-share || fail "completion of an option"
}
try "$scratch/moved"
try "$scratch/root/usr"
for shell in zsh fish; do
    command -v "$shell" >/dev/null || { echo "package: no $shell here, its completion was not read by it"; continue; }
    "$build/manual" "$shell" >"$scratch/completion.$shell"
    "$shell" -n "$scratch/completion.$shell" || fail "$shell: completion"
done
echo "package: installed, moved, packed: programs, data, headers, manual and completion work"
