#!/bin/bash
# What the program says over a broad matrix, as files, so that two builds can be compared byte by byte:
#   tests/freeze.sh store  PROGRAM DIR     run everything, write DIR/*.out (standard output, then the status)
#   tests/freeze.sh compare DIR DIR        list what differs; status 1 if anything does
#   tests/freeze.sh sample  PROGRAM DIR N K  every N-th command from the K-th on, without the figures
# The identity of a run (build, digests of files) is left out: it differs by design. Data come from
# UNMASK_DATA or the program's own tree. About ten minutes on two cores.
set -u

one() { # NAME ARGUMENTS...
    name=$1
    shift
    {
        "$PROGRAM" "$@" 2>/dev/null | python3 -c '
import json, sys
text = sys.stdin.read()
try:
    value = json.loads(text)
    for item in value if isinstance(value, list) else [value]:
        isinstance(item, dict) and item.pop("identity", None)
    text = json.dumps(value, indent=1) + "\n"
except ValueError:
    text = "\n".join(l for l in text.split("\n") if not l.startswith("identity"))
sys.stdout.write(text)'
        echo "status ${PIPESTATUS[0]}"
    } >"$DIR/$name.out"
}
export -f one

names() {
    "$PROGRAM" list "$1" --json | python3 -c '
import json, sys
print(*[row["name"] for row in json.load(sys.stdin)[sys.argv[1]]["rows"]])' "$1"
}

matrix() {
    systems=$(names systems)
    gpus=$(names gpus)
    models=$(names models)
    for system in $systems; do
        for gpu in $gpus; do
            [ "$gpu" = cpu ] && continue
            for workload in "burst 0.3" "burst 5" "sharegpt 2"; do
                set -- $workload
                echo "run-$system-$gpu-$1-$2 run --json --system $system --gpu $gpu --workload $1 --rate $2 --requests 60"
            done
            echo "explain-$system-$gpu explain --json --system $system --gpu $gpu --requests 3 --prompt 300 --output 256 --step 3"
            echo "plan-$system-$gpu plan --json --system $system --gpu $gpu"
        done
        for model in $models; do
            echo "model-$system-$model run --json --system $system --model $model --gpu h100 --workload burst --rate 1 --requests 20"
        done
        for model in llada-tiny sdar-tiny llada2-tiny; do
            echo "live-$system-$model run --backend cpu --clock virtual --system $system --model $model --requests 3 --input-tokens 32 --output-tokens 32 --decode-out $DIR/live-$system-$model.csv"
        done
    done
    for model in llada-8b dream-7b llada-moe; do
        for gpu in rtx3090 a100-40g; do
            echo "lmax-$model-$gpu plan lmax --json --systems native,mosaic-torch,mosaic-compile,mosaic,mosaic-beyond,mosaic-released --model $model --gpu $gpu"
        done
    done
    for gpu in l40s a100-80g h100 h200 rtx4090; do
        echo "profile-$gpu profile check $gpu"
    done
    echo "sensitivity sensitivity --json"
    echo "figures figure --all --out $DIR/figures"
}

# Decode traces as text: what stands about them, and what each pass ran and committed.
texts() {
    python3 - "$DIR"/live-*.csv <<'EOF'
import sqlite3, sys
for path in sys.argv[1:]:
    if open(path, "rb").read(6) != b"SQLite":
        continue
    db = sqlite3.connect(path)
    lines = ["# unmask decode trace"] + [f"# {k}: {v}" for k, v in db.execute("SELECT key, value FROM about ORDER BY rowid")]
    answers = db.execute("SELECT max(answer_tokens) FROM request").fetchone()[0]
    lines += ["request,committed,processed,kept,reach,passes" + (",answer" if answers else "")]
    rows = []
    for row in db.execute("SELECT request, committed, processed, kept, reach, passes FROM pass ORDER BY request, rowid"):
        if rows and rows[-1][:5] == row[:5]:
            row = (*row[:5], rows.pop()[5] + row[5])
        rows.append(row)
    if answers:
        of = dict(db.execute("SELECT id, coalesce(answer_tokens, (SELECT sum(passes * committed) FROM pass WHERE request = id)) FROM request"))
        rows = [(*row, of[row[0]]) for row in rows]
    db.close()
    open(path, "w").write("\n".join(lines + [",".join(map(str, row)) for row in rows]) + "\n")
EOF
}

case "${1:-} $#" in
"store 3")
    export PROGRAM=$(realpath "$2") DIR=$3
    mkdir -p "$DIR" && DIR=$(realpath "$DIR") || exit 1
    matrix | xargs -P "$(nproc)" -I{} bash -c 'one {}'
    # Pictures are gnuplot's, live runs' times the machine's: what they decide is in their decode traces.
    texts
    rm -f "$DIR"/figures/*.png "$DIR"/figures/*.svg "$DIR"/figures/*.pdf
    sed -i '$!d' "$DIR"/live-*.out
    echo "$(find "$DIR" -type f | wc -l) files in $DIR"
    ;;
"sample 5")
    export PROGRAM=$(realpath "$2") DIR=$(realpath "$3")
    # A sample of the matrix, without the figures: every $4-th command from the $5-th on.
    matrix | grep -v '^figures ' | awk -v n="$4" -v o="$5" 'NR % n == o' | xargs -P "$(nproc)" -I{} bash -c 'one {}'
    texts
    sed -i '$!d' "$DIR"/live-*.out 2>/dev/null
    true
    ;;
"compare 3")
    diff -rq "$2" "$3" && echo "nothing differs"
    ;;
*)
    sed -n 2,8p "$0"
    exit 2
    ;;
esac
