#!/usr/bin/env bash
# Trains one model on a GPU and decodes the tests:  gpu.sh MODEL MINUTES DATA WORK [options of train.py]
# DATA: chunks, made beforehand or in the meantime (data.py chunks). PROMPTS: folder of TASK.jsonl; default: prompts.
# TASKS: with commas; default: all of PROMPTS. EVAL_SECONDS: begin no decoding later than this; default: 120. WORK gets log.jsonl, eval.jsonl, state.pt, export/.
set -u
model=$1 minutes=$2 data=$3 work=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
prompts=${PROMPTS:-$here/prompts}
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
mkdir -p "$work"
train() { python3 "$here/train.py" --model "$model" --minutes "$minutes" --data "$data" --work "$work" "$@"; }
if ! train "$@"; then
    echo "once more, with nothing compiled"
    train "$@" --eager --dense --micro 4 || exit 1
fi
python3 "$here/decode.py" "$work/export" --prompts "$prompts" --seconds "${EVAL_SECONDS:-120}" \
    --tasks "${TASKS:-$(cd "$prompts" && ls ./*.jsonl | sed 's/.*\///; s/.jsonl//' | paste -sd,)}" \
    --limit "${LIMIT:-512}" --thresholds "${THRESHOLDS:-0.9,one,0.8,0.7}" --out "$work/eval.jsonl" --texts "$work/texts.jsonl"
