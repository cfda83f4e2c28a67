#!/bin/bash
# Profiles of several calibrations (build/refit), from the calibrations that are kept.
#
#   pool.sh profiles BUILD OUT    OUT/GPU/MODEL.csv: what kernels/profiles holds
#   pool.sh without BUILD OUT     the live grids by a profile of all other cards of the kind: what
#                                 kernels/profiles/GPU/llada-8b.csv may be worth on a card that is not
#                                 among its own; OUT/CARD/table.txt, "fresh"
# BUILD holds refit (make build/refit) and unmask.
set -u
what=$1 build=$2 out=$3
gpu_dir=$(cd "$(dirname "$0")" && pwd)
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$gpu_dir/../.." && pwd)}
mkdir -p "$out/all"
for archive in 2026-11-25-held/h100 2026-11-25-held/h200 2026-11-25-cards/h100 2026-11-25-cards/h200 2026-11-25-cards/h100-sdar \
    2026-11-25-cards/own-h100 2026-11-25-cards/own-h200 2026-11-25-grid-96/h100 2026-11-25-grid-96/h200 \
    2026-11-26-power/h100 2026-11-26-power/h200 2026-11-27-tiles/h100 2026-11-27-tiles/h200 2026-11-27-tiles/models; do
    mkdir -p "$out/all/$archive"
    tar xzf "$gpu_dir/results/$archive.tar.gz" -C "$out/all/$archive"
done

# Cards by where their calibrations lie; the host's times are of those that measured them under load.
# The first gives the file's other rows.
h100=(host:2026-11-27-tiles/h100/{a,b,c,d} host:2026-11-26-power/h100/{a,b,c,d} host:2026-11-25-cards/own-h100 host:2026-11-25-grid-96/h100/{a,b} host:2026-11-25-cards/h100/b
    2026-11-25-cards/h100/a 2026-11-25-held/h100/b)
h200=(host:2026-11-27-tiles/h200/{a,b,c,d} host:2026-11-26-power/h200/{a,b,c,d} host:2026-11-25-cards/own-h200 host:2026-11-25-grid-96/h200/{a,b} host:2026-11-25-cards/h200/b
    2026-11-25-held/h200/b)

# FILE MODEL CARD...: of all the cards but $except
refit() {
    local to=$1 model=$2 files=() card host
    shift 2
    for card; do
        local at=$out/all/${card#host:}
        [[ $card == host:* ]] && host=host: || host=
        [ "${card#host:}" = "${except:-}" ] || files+=("$host$at/fresh-$model.csv" "$at/calibrate-$model.json")
    done
    "$build/refit" "$to" "${files[@]}" || exit 1
}

# GPU MODEL CARD...; what passes between submissions is of live runs, from the profile that is there
profile() {
    local to=$out/$1/$2.csv was=$UNMASK_DATA/kernels/profiles/$1/$2.csv
    mkdir -p "$out/$1"
    refit "$to.refit" "$2" "${@:3}"
    awk -v note="$(grep '^# between:' "$was")" -v row="$(grep '^between,' "$was")" '
        /^# between:/ || /^between,/ { next }
        !/^#/ && !noted { print note; noted = 1 }
        /^host,/ && !placed { print row; placed = 1 }
        { print }' "$to.refit" >"$to"
    sed -i "s/^# rows: .*/# rows: $(grep -vc '^#' "$to")/" "$to"
    rm "$to.refit"
    echo "$1/$2: $(grep '^# power:' "$to")"
}

# GPU REQUESTS CARD
without() {
    local cards=("${h100[@]}") folder=$out/${3//\//-}
    [ "$1" = h200 ] && cards=("${h200[@]}")
    rm -rf "$folder"
    mkdir -p "$folder"
    cp "$out/all/$3"/grid-*-live.* "$folder"
    except=$3 refit "$folder/fresh-llada-8b.csv" llada-8b "${cards[@]}"
    REQUESTS=$2 "$gpu_dir/decisions.sh" simulate "$build" "$folder" "$1" grid >/dev/null
    "$gpu_dir/decisions.sh" table "$build" "$folder" >"$folder/table.txt"
    echo "$3"
    grep ^fresh "$folder/table.txt"
}

case $what in
profiles)
    profile h100 llada-8b "${h100[@]}"
    profile h200 llada-8b "${h200[@]}"
    profile h100 llada-moe host:2026-11-27-tiles/models/c host:2026-11-25-grid-96/h100/b 2026-11-25-held/h100/a
    profile h200 llada-moe host:2026-11-26-power/h200/d 2026-11-25-held/h200/a
    # The second does not tell how long events took; the two cards' power differs by 6 %.
    profile h100 llada2-mini host:2026-11-27-tiles/models/d 2026-11-25-held/h100/b
    profile h200 llada2-mini host:2026-11-26-power/h200/a # the other does not tell how long events took
    profile h100 dream-7b host:2026-11-27-tiles/models/a host:2026-11-25-grid-96/h100/a
    profile h200 dream-7b host:2026-11-26-power/h200/b 2026-11-25-cards/h200/a
    profile h100 sdar-8b host:2026-11-27-tiles/models/b 2026-11-25-cards/h100-sdar
    profile h200 sdar-8b host:2026-11-26-power/h200/c 2026-11-25-held/h200/b
    ;;
without)
    without h100 48 2026-11-25-cards/h100/a
    without h100 48 2026-11-25-cards/own-h100
    for card in 2026-11-25-grid-96/h100/{a,b} 2026-11-26-power/h100/{a,b,c,d}; do without h100 96 $card; done
    without h200 48 2026-11-25-cards/own-h200
    for card in 2026-11-25-grid-96/h200/{a,b} 2026-11-26-power/h200/{a,b,c,d}; do without h200 96 $card; done
    for card in 2026-11-27-tiles/h200/{a,b,c,d}; do without h200 48 $card; done
    ;;
*) sed -n '2,/^set/p' "$0" >&2; exit 2 ;;
esac
