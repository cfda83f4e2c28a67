#!/bin/bash
# What is declared once: tests/house/once.sh BUILD CC applies to a copy of the tree
#   request_metric.patch  a request's metric that the loop counts, in at most 2 files,
#   run_metric.patch      a run's metric that follows from others, in 1 file,
#   operator.patch        an operator with its key and its kernel in C, in at most 9 files (10 with a kernel in CUDA),
# builds it, looks the metrics up in JSON, `list fields`, a database (made before the change as well) and the page of
# fields, and has the operator priced and executed.
set -eu
build=$(realpath "$1") cc=$2
here=$(cd "$(dirname "$0")/../.." && pwd)
copy=$build/house
db=$copy/runs.db
failed=0

check() { # WHAT COMMAND...
    what=$1
    shift
    if "$@" >/dev/null 2>&1; then echo "ok      $what"; else echo "MISSING $what"; failed=1; fi
}

record() { # PROGRAM
    UNMASK_DATA=$copy "$1" run --json --system sdar --gpu h100 --rate 1 --requests 20 --db "$db" 2>/dev/null
}

rm -rf "$copy"
mkdir -p "$copy"
(cd "$here" && git ls-files -z --cached --others --exclude-standard | tar c --null -T - | tar x -C "$copy")
record "$build/unmask" >/dev/null
for patch in request_metric:2 run_metric:1 operator:9; do
    file=$here/tests/house/${patch%:*}.patch
    n=$(grep -c '^+++ ' "$file")
    check "${patch%:*} in at most ${patch#*:} files ($n)" test "$n" -le "${patch#*:}"
    (cd "$copy" && patch -s -p1 --fuzz=0 <"$file")
done
make -s -C "$copy" -j"$(nproc)" BUILD=build CC="$cc" build/unmask build/manual >/dev/null
record "$copy/build/unmask" >"$copy/run.json"

check "JSON: first_block_steps is counted" python3 -c "
import json
run = json.load(open('$copy/run.json'))
assert 20 <= run['first_block_steps'] <= run['request_steps']"
check "JSON: tokens_per_step follows from others, at its place" python3 -c "
import json
run = json.load(open('$copy/run.json'))
assert abs(run['tokens_per_step'] - run['tokens_committed'] / run['steps']) < 1e-6
keys = list(run)
assert keys[keys.index('max_batch') - 1] == 'tokens_per_step' and keys.index('first_block_steps') > keys.index('tpf_answer')"
check "database: a run from before has NULL, the new one the sum of JSON" python3 -c "
import json, sqlite3
db = sqlite3.connect('$db')
rows = db.execute('SELECT run, count(*), sum(first_block_steps) FROM requests GROUP BY run').fetchall()
assert rows == [(1, 20, None), (2, 20, json.load(open('$copy/run.json'))['first_block_steps'])], rows
assert db.execute('PRAGMA user_version').fetchone() == (12,)"
for name in first_block_steps tokens_per_step; do
    check "list fields: $name" sh -c "'$copy/build/unmask' list fields | grep -q '^$name '"
    check "reference: $name" sh -c "'$copy/build/manual' fields | grep -q '^| .$name. | .* | .* |'"
done
explained() { # WORDS...
    UNMASK_DATA=$copy "$copy/build/unmask" explain "$@" --set runtime.fused_gate_up=off --set runtime.rounds_rows=on |
        grep -q '^dense layers/round gated *round-rows'
}
check "operator: priced by a profile" explained --gpu h100
check "operator: executed on the processor" explained --backend cpu --model llada-tiny
check "operator: its key has a page" sh -c "'$copy/build/manual' keys | grep -q '^| .runtime.rounds_rows. '"
exit $failed
