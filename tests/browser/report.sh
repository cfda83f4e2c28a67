#!/usr/bin/env bash
# The report page in a real browser: report.js works the page of a small database as its reader would,
# and compares with what `unmask plot` says; a page of 240 runs opens and stays below 2 MB.
# Usage: report.sh PROGRAM [CHROMIUM]
set -euo pipefail
program=$(realpath "$1")
browser=${2:-chromium}
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

sweep() { # NAME REQUESTS SYSTEMS RATES SEEDS
    printf '[sweep]\nsystems = %s\ngpus = l40s\nworkloads = burst\nrates = %s\nrequests = %s\n' "$3" "$4" "$2" >"$1.ini"
    "$program" sweep "$1.ini" --seeds "$5" --db "$1.db" --levels steps >/dev/null 2>&1
    "$program" report "$1.db" --out "$1.html"
}

# What the page is once its scripts have run, the test behind its own.
open_page() { # NAME SCRIPT
    {
        sed '2s|<head>|<head><script>window.faults = []; onerror = m => { faults.push(m); };</script>|' "$1.html"
        echo "<script>const expected = $(cat expected.json);</script><script>$(cat "$2")</script>"
    } >"$1-tested.html"
    HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu --virtual-time-budget=20000 \
        --dump-dom "file://$work/$1-tested.html" 2>"$1.log" >"$1.dom" || { cat "$1.log"; exit 1; }
    grep -q '<pre id="tested">ok' "$1.dom" || {
        echo "browser: $1 failed:"
        sed -n '/<pre id="tested">/,/<\/pre>/p' "$1.dom"
        exit 1
    }
    sed -n 's/.*<pre id="tested">\(ok[^<]*\).*/browser: '"$1"' \1/p' "$1.dom"
}

sweep small 40 'dllm-serve, sparse-dllm' '0.2, 0.4' 3
if grep -oE '(src|href)="[^#"]|https?://[a-z0-9.]*' "$here/../../analysis/plot/report.html" | grep -v 'http://www.w3.org'; then
    echo "browser: the page refers to something outside itself"
    exit 1
fi
"$program" plot small.db -x rate -y latency_s.p99 --by system --json >expected.json
open_page small "$here/report.js"

sweep large 100 'dllm-serve, sparse-dllm, fast-dllm, dllm-serve-published' '0.05, 0.1, 0.15, 0.2, 0.25, 0.3' 10
size=$(stat -c %s large.html)
[ "$size" -lt 2000000 ] || { echo "browser: 240 runs are $size bytes"; exit 1; }
open_page large "$here/large.js"
echo "browser: 240 runs are $size bytes"
