#!/bin/bash
# What the program says over a broad matrix, as files, so that two builds can be compared:
#   tests/freeze.sh store   PROGRAM DIR      run everything into DIR, which is empty or not there yet
#   tests/freeze.sh sample  PROGRAM DIR N K  one row in N, the K-th choice of them, without the figures; of rows that fit ROWS
#   tests/freeze.sh compare DIR DIR          list the files whose bytes differ; status 1 if any do
#   tests/freeze.sh numbers DIR DIR          the same for keys and numbers: words may differ
#   tests/freeze.sh against PROGRAM PROGRAM DIR N K WAY  a sample of both below DIR, compared (WAY: compare or numbers)
# A command's file NAME.out is its standard output, where it fails the sentences of standard error, and the
# status. Recorded runs and decode traces become rows. The identity of a run (build, digests of files)
# is left out: it differs by design. Data come from UNMASK_DATA or the program's own tree. A store takes about
# ten minutes on two cores. ROWS is a regular expression in the environment.
set -u
here=$(dirname "$(realpath "$0")")

one() { # NAME ARGUMENTS... [then ARGUMENTS...]...
    name=$1
    file=$1
    shift
    i=1
    while [ $# -gt 0 ]; do
        args=()
        while [ $# -gt 0 ] && [ "$1" != then ]; do args+=("$1"); shift; done
        shift
        {
            "$PROGRAM" "${args[@]}" 2>"$file.err"
            status=$?
            [ $status = 0 ] || grep -v ' in [0-9.e-]* s$' "$file.err"
            echo "status $status"
        } >"$file.out"
        rm "$file.err"
        i=$((i + 1)) file=$name.$i
    done
}
export -f one

names() {
    "$PROGRAM" list "$1" --json | python3 -c '
import json, sys
print(*[row["name"] for row in json.load(sys.stdin)[sys.argv[1]]["rows"]])' "$1"
}

# One row a line: NAME ARGUMENTS..., and after `then` the next command. Files are named relative to the store.
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
            echo "live-$system-$model run --backend cpu --clock virtual --system $system --model $model --requests 3 --input-tokens 32 --output-tokens 32 --decode-out live-$system-$model.csv"
        done
        echo "compare-$system compare --json --systems $system,dllm-serve,sdar --gpu h100 --requests 10 --seeds 2 --output-tokens 64 -j 1"
        echo "bound-$system bound --json --system $system --gpu h200 --requests 8 --output-tokens 64 --slo-latency 9s -j 1"
        echo "capacity-$system capacity --json --system $system --gpu h100 --requests 12 --output-tokens 32 --within 40 --slo latency\\<12s,goodput\\>60% -j 1"
        echo "record-$system run --json --system $system --gpu h100 --requests 6 --rate 2 --output-tokens 64 --replicas 2 --db record-$system.db --levels events --timeline record-$system.json \
then replay --json --db record-$system.db --run 1 then plot --json record-$system.db --over-time running,waiting,batch,kv_bytes,busy"
    done
    for model in $models; do
        case $model in
        *-tiny)
            echo "generate-$model generate --backend cpu --model $model --ids 5,6,7,8,9 --output-tokens 24 --outputs generate-$model.jsonl --decode-out generate-$model.csv"
            echo "generate-drawn-$model generate --backend cpu --model $model --ids 5,6,7 --output-tokens 24 --temperature 0.8 --top-k 40 --seed 3 --outputs generate-drawn-$model.jsonl --decode-out generate-drawn-$model.csv"
            ;;
        esac
    done
    echo "sweep sweep inputs/grid.ini --json --db sweep.db --levels steps --seeds 2 --slo-latency 9s -j 1 then sweep inputs/grid.ini --json --db sweep.db -j 1"
    for what in $("$PROGRAM" list --json | python3 -c 'import json, sys; print(*json.load(sys.stdin))'); do
        echo "list-$what list $what --json"
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
    echo "figures figure --all --out figures"
}

inputs() {
    mkdir -p inputs
    printf '%s\n' '[sweep]' 'systems = dllm-serve, sdar, focus, vllm-ar' 'gpus = h100, l40s' 'rates = 0.5, 4' \
        'requests = 12' 'output_tokens = 64' 'set.max_requests = 2, 16' >inputs/grid.ini
}

# Run the rows that the command in "$@" lets through.
store() { # PROGRAM DIR COMMAND...
    PROGRAM=$(realpath "$1") || exit 1
    export PROGRAM
    mkdir -p "$2" && cd "$2" || exit 1
    [ -z "$(ls -A)" ] || { echo "$2 is not empty" >&2; exit 1; }
    shift 2
    inputs
    matrix | "$@" | xargs -d '\n' -P "$(nproc)" -I{} bash -c 'one {}'
    python3 "$here/freeze.py" texts . || exit 1
    rm -f figures/*.png figures/*.svg figures/*.pdf # pictures are gnuplot's
    echo "$(find . -type f | wc -l) files in $PWD"
}

# By a sum over a row's name, so that programs which list other systems are asked the same rows.
some() {
    grep -v '^figures ' | grep -E -- "${ROWS:-.}" | python3 -c '
import sys, zlib
n, k = int(sys.argv[1]), int(sys.argv[2])
sys.stdout.writelines(row for row in sys.stdin if zlib.crc32(row.split()[0].encode()) % n == k % n)' "$1" "$2"
}

case "${1:-} $#" in
"store 3") store "$2" "$3" cat ;;
"sample 5") store "$2" "$3" some "$4" "$5" ;;
"compare 3" | "numbers 3") python3 "$here/freeze.py" "$@" ;;
"against 7")
    rm -rf "$4/reference" "$4/ours"
    (store "$2" "$4/reference" some "$5" "$6") && (store "$3" "$4/ours" some "$5" "$6") &&
        python3 "$here/freeze.py" "$7" "$4/reference" "$4/ours"
    ;;
*)
    sed -n 2,11p "$0"
    exit 2
    ;;
esac
