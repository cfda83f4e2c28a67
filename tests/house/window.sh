#!/bin/bash
# What the window makes room for: tests/house/window.sh BUILD CC applies to a copy of the tree
#   takes_back.patch     a decoder that takes back a commit, in at most 4 files,
#   width_by_load.patch  a scheduler whose windows are narrow while requests wait, in at most 3,
# builds it, runs both, simulated and on the processor, and plays what was recorded.
set -u
build=$(realpath "$1") cc=$2
here=$(cd "$(dirname "$0")/../.." && pwd)
copy=$build/house-window
db=$copy/runs.db
failed=0

check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >/dev/null 2>&1; then echo "ok      $what"; else echo "MISSING $what"; failed=1; fi
}

ask() { # QUERY: of the last run
    python3 -c "
import sqlite3, sys
print(sqlite3.connect('$db').execute(sys.argv[1]).fetchone()[0])" "$1"
}

# Runs the words simulated, then live; each is recorded and played.
try() { # WHAT WORDS...
    local what=$1 live
    shift
    for live in "" "--backend cpu --clock virtual"; do
        rm -f "$db"
        # shellcheck disable=SC2086
        check "$what, ${live:-simulated}" env UNMASK_DATA="$copy" "$copy/build/unmask" run "$@" $live \
            --gpu cpu --model llada-tiny --set storage.weights=f32 --set block_tokens=8 --requests 6 \
            --rate 50 --input-tokens 8 --output-tokens 24 --db "$db" --levels events
        check "$what, ${live:-simulated}: played" env UNMASK_DATA="$copy" "$copy/build/unmask" replay --db "$db" --run 1
    done
}

rm -rf "$copy"
mkdir -p "$copy"
(cd "$here" && git ls-files -z --cached --others --exclude-standard | tar c --null -T - | tar x -C "$copy") || exit 1
for patch in takes_back:4 width_by_load:3; do
    file=$here/tests/house/${patch%:*}.patch
    n=$(grep -c '^+++ ' "$file")
    check "${patch%:*} in at most ${patch#*:} files ($n)" test "$n" -le "${patch#*:}"
    (cd "$copy" && patch -s -p1 <"$file") || exit 1
done
make -s -C "$copy" -j"$(nproc)" BUILD=build CC="$cc" build/unmask >/dev/null || exit 1

try "takes back" --system vanilla-remask
check "takes back: some outcomes are no commits" test "$(ask 'SELECT count(outcomes) FROM steps')" -gt 0
try "width by load" --system fast-dllm-quarter-by-load --decoder threshold --set max_requests=2
check "width by load: more blocks end where windows are narrow" test "$(ask "SELECT count(*) FROM events JOIN names
    ON value = events.kind AND names.kind = 'event' WHERE name = 'block-done'")" -gt 18
exit $failed
