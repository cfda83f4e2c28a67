#!/bin/bash
# The live runs that are kept, simulated by today's program: with the card's shipped profile (other
# processes; "shipped"; LLaDA-8B's have calibrations of these cards among theirs), with the other
# card's, transferred ("fresh"), and in the live batches ("batches"). In the sets named own "fresh" is by the calibration that the
# same card had just before, in a process of its own, fitted as calibrate fits today (build/refit).
#   again.sh BUILD OUT [SET...]    OUT/SET/table.txt, of all sets unless some are named
set -u
unset RUNS
build=$1 out=$2
shift 2
wanted=" $* "
here=$(cd "$(dirname "$0")" && pwd)
export UNMASK_DATA=${UNMASK_DATA:-$(cd "$here/../.." && pwd)}
unmask="$build/portable/unmask"
[ -x "$unmask" ] || unmask="$build/unmask"
mkdir -p "$out"
for gpu in h100 h200; do
    other=h200
    [ $gpu = h200 ] && other=h100
    for model in llada-8b sdar-8b llada2-mini; do
        "$unmask" profile transfer --from $other --to $gpu --profile "$UNMASK_DATA/kernels/profiles/$other/$model.csv" \
            --out "$out/$gpu-$model.csv" --replace >/dev/null 2>&1 || exit 1
    done
done

# SET GPU ARCHIVE [FOLDERS IN IT]: of several cards a folder each, a table of each and one of all
again() {
    [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]] || return
    local folder=$out/$1 all=$out/$1/all card=$out/$1/card from own model
    rm -rf "$folder"
    mkdir -p "$all"
    tar xzf "$here/results/$3" -C "$all"
    for from in ${4:-.}; do
        mkdir "$card"
        mv "$all/$from"/*-live.* "$card"
        mv "$all/$from"/*-again.* "$all/$from"/*-decode.db "$card" 2>/dev/null
        [[ $1 == *-own ]] && mv "$all/$from"/fresh-*.csv "$card"
        for own in "$card"/fresh-*.csv; do # as calibrate writes it since
            [ ! -f "$own" ] || grep -q ^between, "$own" ||
                sed -i -E 's/^# rows: ([0-9]+)/echo "# rows: $((\1 + 1))"/e; 0,/^host,/s//between,47000\nhost,/' "$own"
        done
        for model in llada-8b sdar-8b llada2-mini; do
            [[ $1 == *-own ]] || cp "$out/$2-$model.csv" "$card/fresh-$model.csv"
        done
        if [[ $1 == *-own ]]; then
            own=$card/fresh-llada-8b.csv
            "$build/refit" "$own.new" "host:$own" "$all/$from/calibrate-llada-8b.json" 2>/dev/null || { echo "$own: not refitted"; exit 1; }
            mv "$own.new" "$own"
        fi
        "$here/decisions.sh" simulate "$build" "$card" "$2" >/dev/null
        [ "$from" = "${4:-.}" ] || "$here/decisions.sh" table "$build" "$card" >"$folder/table-$from.txt"
        mv "$card"/* "$folder"
        rmdir "$card"
    done
    rm -rf "$all"
    "$here/decisions.sh" table "$build" "$folder" >"$folder/table.txt"
    echo "$1: $(grep -c . "$folder/table.txt") lines"
}
again h100-grid-1 h100 2026-11-24-routers/h100.tar.gz
again h100-parts h100 2026-11-24-parts/h100.tar.gz
again h100-sdar h100 2026-11-23-issued-steps/h100-sdar.tar.gz
again h100-mini h100 2026-11-25-held/h100.tar.gz a
again h100-grid-2 h100 2026-11-25-held/h100.tar.gz b
REQUESTS=48 again h100-grid-48 h100 2026-11-25-cards/h100.tar.gz a
again h200-grid-1 h200 2026-11-23-issued-steps/h200.tar.gz
again h200-parts h200 2026-11-24-routers/h200.tar.gz
again h200-sdar h200 2026-11-24-parts/h200.tar.gz
again h200-mini h200 2026-11-25-held/h200.tar.gz a
again h200-grid-2 h200 2026-11-25-held/h200.tar.gz b
again h200-more h200 2026-11-25-cards/h200.tar.gz a
REQUESTS=48 again h100-own h100 2026-11-25-cards/own-h100.tar.gz
REQUESTS=48 again h200-own h200 2026-11-25-cards/own-h200.tar.gz
REQUESTS=48 again h100-grid-48-2 h100 2026-11-25-cards/own-h100.tar.gz
REQUESTS=48 again h200-grid-48 h200 2026-11-25-cards/own-h200.tar.gz
REQUESTS=96 again h100-96-own h100 2026-11-25-grid-96/h100.tar.gz "a b"
REQUESTS=96 again h200-96-own h200 2026-11-25-grid-96/h200.tar.gz "a b"
REQUESTS=96 again h100-96-2-own h100 2026-11-26-power/h100.tar.gz "a b c d"
REQUESTS=96 again h200-96-2-own h200 2026-11-26-power/h200.tar.gz "a b c d"
REQUESTS=96 again h100-grid-96-2 h100 2026-11-26-power/h100.tar.gz "a b c d"
REQUESTS=96 again h200-grid-96-2 h200 2026-11-26-power/h200.tar.gz "a b c d"
REQUESTS=96 again h100-grid-96 h100 2026-11-25-grid-96/h100.tar.gz "a b"
REQUESTS=96 again h200-grid-96 h200 2026-11-25-grid-96/h200.tar.gz "a b"
# All twelve on each card.
for card in a b c d; do
    REQUESTS=48 again h200-48-$card-own h200 2026-11-27-tiles/h200.tar.gz $card
    REQUESTS=48 again h200-48-$card h200 2026-11-27-tiles/h200.tar.gz $card
done
