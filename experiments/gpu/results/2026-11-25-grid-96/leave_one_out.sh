#!/bin/bash
# The live grids by a profile of all other cards of the kind: what kernels/profiles/GPU/llada-8b.csv
# may be worth on a card that is not among its own.
#   leave_one_out.sh BUILD REFIT OUT     (REFIT: refit.c, built); OUT/CARD/table.txt, "fresh"
set -u
build=$1 refit=$2 out=$3
gpu=$(cd "$(dirname "$0")/../.." && pwd)
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$gpu/../.." && pwd)}
mkdir -p "$out/all"
for archive in 2026-11-25-held/h100 2026-11-25-held/h200 2026-11-25-cards/h100 2026-11-25-cards/h200 \
    2026-11-25-cards/own-h100 2026-11-25-cards/own-h200 2026-11-25-grid-96/h100 2026-11-25-grid-96/h200; do
    mkdir -p "$out/all/$archive"
    tar xzf "$gpu/results/$archive.tar.gz" -C "$out/all/$archive"
done
# Cards by where their calibrations lie; the host's times are of those that measured them under load.
# The first that is not left out gives the file's other rows.
h100=(host:2026-11-25-grid-96/h100/a host:2026-11-25-grid-96/h100/b host:2026-11-25-cards/h100/b
    host:2026-11-25-cards/own-h100 2026-11-25-cards/h100/a 2026-11-25-held/h100/b)
h200=(host:2026-11-25-grid-96/h200/a host:2026-11-25-grid-96/h200/b host:2026-11-25-cards/h200/b
    host:2026-11-25-cards/own-h200 2026-11-25-held/h200/b)

# GPU REQUESTS CARD
without() {
    local cards=("${h100[@]}") files=() card host folder=$out/${3//\//-}
    [ "$1" = h200 ] && cards=("${h200[@]}")
    for card in "${cards[@]}"; do
        local at=$out/all/${card#host:}
        [[ $card == host:* ]] && host=host: || host=
        [ "${card#host:}" = "$3" ] || files+=("$host$at/fresh-llada-8b.csv" "$at/calibrate-llada-8b.json")
    done
    rm -rf "$folder"
    mkdir -p "$folder"
    cp "$out/all/$3"/grid-*-live.* "$folder"
    "$refit" "$folder/fresh-llada-8b.csv" "${files[@]}" || exit 1
    REQUESTS=$2 "$gpu/decisions.sh" simulate "$build" "$folder" "$1" grid >/dev/null
    "$gpu/decisions.sh" table "$build" "$folder" >"$folder/table.txt"
    echo "$3"
    grep ^fresh "$folder/table.txt"
}
without h100 48 2026-11-25-cards/h100/a
without h100 48 2026-11-25-cards/own-h100
without h100 96 2026-11-25-grid-96/h100/a
without h100 96 2026-11-25-grid-96/h100/b
without h200 48 2026-11-25-cards/own-h200
without h200 96 2026-11-25-grid-96/h200/a
without h200 96 2026-11-25-grid-96/h200/b
