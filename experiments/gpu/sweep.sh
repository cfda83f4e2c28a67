#!/bin/bash
# GuideLLM asks `unmask serve` at several rates, and each is simulated: measured, seen by the client, simulated.
# Usage: sweep.sh BUILD OUT MODEL SYSTEM RATE...; prints `unmask validate` for each rate, OUT keeps records, GuideLLM's files and logs.
# Needs BUILD/unmask with BUILD/libunmask_http.so and guidellm (GUIDELLM=PATH; make serve-clients installs it into BUILD/clients).
# ON='--backend cuda --library PATH' serves from a GPU, else a simulation does. WORDS are more of serve's options. PROFILE=FILE prices by it.
# PROMPT and OUTPUT are tokens of a request (200, 64), SECONDS_EACH how long requests come at a rate (14), at least 16 of them.
set -u
build=$1 out=$2 model=$3 system=$4
shift 4
here=$(dirname "$(realpath "$0")")
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
# Several processes of GuideLLM send each its share of the requests at once.
export GUIDELLM__MAX_WORKER_PROCESSES=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DO_NOT_TRACK=1 COLUMNS=200
unmask=${UNMASK:-$build/unmask} guidellm=${GUIDELLM:-$build/clients/guidellm/bin/guidellm}
tokenizer=$UNMASK_DATA/experiments/train/models/llada-2m
mkdir -p "$out"
failed=0

# RATE
one() {
    name=$out/$model-$1
    rm -f "$name.db"
    # shellcheck disable=SC2086
    "$unmask" serve --listen 127.0.0.1:0 --system "$system" --model "$model" ${ON:-} ${WORDS:-} --tokenizer "$tokenizer" --db "$name.db" \
        --levels steps >"$name.out" 2>"$name.log" &
    server=$!
    until grep -q http:// "$name.log" || ! kill -0 $server 2>/dev/null; do sleep 0.1; done
    at=$(grep -o 'http://[0-9.:]*' "$name.log" | head -n 1)
    [ -n "$at" ] || { tail -n 1 "$name.log" >&2; return 1; }
    count=$(awk -v r="$1" -v s="${SECONDS_EACH:-14}" 'BEGIN { n = int(r * s + 0.5); print (n > 16 ? n : 16) }')
    "$guidellm" run --backend "kind=openai_http,target=$at,model=$model,request_format=/v1/completions" --profile "kind=poisson,rate=$1" \
        --constraint "kind=max_requests,count=$count" --tokenizer "kind=huggingface_auto,model=$tokenizer" \
        --data "kind=synthetic_text,prompt_tokens=${PROMPT:-200},output_tokens=${OUTPUT:-64}" --output "kind=json,path=$name.json" \
        --disable-console-interactive >"$name.guidellm" 2>&1 || { tail -n 3 "$name.guidellm" >&2; kill $server; return 1; }
    kill -TERM $server
    wait $server || return 1
    echo "== $model, $1 requests a second, $count requests"
    # shellcheck disable=SC2086
    "$unmask" validate --measured "$name.db" ${SHARED:+--shared} --client "$name.json" ${PROFILE:+--profile "$PROFILE"}
}

for rate; do
    one "$rate" || failed=1
done
exit $failed
