#!/bin/bash
# A metric is declared once: tests/house/columns.sh BUILD CC applies to a copy of the tree
#   request_metric.patch  a request's metric that the loop counts, in at most 2 files,
#   run_metric.patch      a run's metric that follows from others, in 1 file,
# builds it and looks both up in JSON, `list fields`, a database (made before the change as well) and the page of fields.
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
for patch in request_metric:2 run_metric:1; do
    file=$here/tests/house/${patch%:*}.patch
    n=$(grep -c '^+++ ' "$file")
    check "${patch%:*} in at most ${patch#*:} files ($n)" test "$n" -le "${patch#*:}"
    (cd "$copy" && patch -s -p1 <"$file")
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
assert db.execute('PRAGMA user_version').fetchone() == (9,)"
for name in first_block_steps tokens_per_step; do
    check "list fields: $name" sh -c "'$copy/build/unmask' list fields | grep -q '^$name '"
    check "reference: $name" sh -c "'$copy/build/manual' fields | grep -q '^| .$name. | .* | .* |'"
done
exit $failed
