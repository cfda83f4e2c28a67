#!/usr/bin/env bash
# distributions.sh all|libraries BUILD [MIRROR]: builds and tests on other versions of Debian, in chroots that hold gcc, make
# and git, and prints a table. Needs root and mmdebstrap. `libraries` takes the oldest alone, compiles at -O1 and runs the suites
# that touch libraries, for CI. What cannot be fetched (a version that the mirror serves no more) is said and passed over.
# DEBIANS in the environment: which of them, by their code names. MIRROR: the one that this machine's apt takes Debian from. Logs,
# and what was red, stay in BUILD/distributions.
set -euo pipefail
mode=$1 build=$(realpath -m "$2") mirror=${3:-}
work=$build/distributions
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$work"
say() { echo "distributions: $*"; }
[ "$(id -u)" = 0 ] || { say "chroots want root: nothing was tried"; exit 0; }
command -v mmdebstrap >/dev/null || { say "mmdebstrap is missing: nothing was tried"; exit 0; }
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
    grep -v security | head -n 1)
[ -n "$mirror" ] || { say "apt knows no mirror of Debian here: give MIRROR=http://...; nothing was tried"; exit 0; }

# Suites that hold libraries' answers: JSON, tokenizers, databases, queries, archives, planners' solver, drawings, BLAS.
suites="analysis/test_store analysis/test_plot engine/test_weights engine/test_tokenizer engine/test_device
        experiments/test_study experiments/test_identity experiments/test_plot_command experiments/test_trace
        traces/test_decode_trace traces/test_prompts sim/test_plugin sim/test_planner sim/test_model_config"

# inside ROOT COMMAND: in a namespace whose processes and mounts end with it.
inside() {
    unshare --mount --pid --fork --kill-child sh -c '
        root=$1; shift
        mount --make-rprivate / && mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
            mount -t tmpfs -o mode=1777 tmpfs "$root/tmp" || exit 125
        cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null
        exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 sh -c "cd /src && $1"' _ "$@" </dev/null
}

# fetch SUITE PACKAGES: a fresh chroot with these sources.
fetch() {
    local root=$work/$1
    rm -rf "$root"
    mmdebstrap --quiet --variant=minbase --include="$2" --aptopt='Acquire::Check-Valid-Until "false"' \
        "$1" "$root" "$mirror" >"$work/$1-fetch.log" 2>&1 || return 1
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/99distributions"
    mkdir -p "$root/src"
    git -C "$source" ls-files -co --exclude-standard -z | (cd "$source" && xargs -0 ls -d 2>/dev/null) |
        tar c -C "$source" --no-recursion -T - | tar x --no-same-owner -C "$root/src"
}

versions() {
    inside "$1" 'for p in jansson libpcre2-8 sqlite3 openblas gsl; do printf "%s|" "$(pkg-config --modversion $p)"; done
                 printf "%s, %s" "$(ldd --version | sed -n "1s/.* //p")" "$(gcc -dumpfullversion)"' 2>/dev/null
}

# Green and all suites of a log of `make test`.
count() {
    echo "$(grep -c '^100%: ' "$1" || true) of $(grep -c '^[0-9]*%: ' "$1" || true)"
}

red=0
try() { # try SUITE NAME
    local root=$work/$1 log=$work/$1.log start=$SECONDS demo tests
    if ! fetch "$1" gcc,make,git; then
        say "Debian $2 cannot be fetched ($(tail -n 1 "$work/$1-fetch.log")): passed over"
        echo "$2|not fetched" >>"$work/table"
        return 0
    fi
    start=$SECONDS
    inside "$root" "make -j$(nproc) demo" >"$log" 2>&1 && demo="$((SECONDS - start)) s" || { demo=red; red=1; }
    start=$SECONDS
    inside "$root" "make -k -j$(nproc) test" >"$work/$1-test.log" 2>&1 || red=1
    tests="$((SECONDS - start)) s"
    echo "$2|$(versions "$root")|$demo|$tests|$(count "$work/$1-test.log")" >>"$work/table"
    grep -E '^[0-9]+%: .*(Failures: [1-9]|Errors: [1-9])|:[FE]:|^make.*\*\*\*' "$work/$1-test.log" || true
    rm -rf "$root"
}

if [ "$mode" = libraries ]; then
    packages=$(awk -F'|' '/^(program|tests)[|]/ { print $8 }' "$source/.ci/libraries.txt" | paste -sd,)
    if ! fetch bullseye "gcc,make,git,pkg-config,libopenblas-dev,gnuplot-nox,$packages"; then
        say "Debian 11 cannot be fetched ($(tail -n 1 "$work/bullseye-fetch.log")): passed over"
        exit 0
    fi
    targets=""
    for suite in $suites; do
        [ -e "$source/tests/$suite.c" ] && targets="$targets build/tests/$suite.run"
    done
    inside "$work/bullseye" "make -j$(nproc) OPT=-O1 WERROR=-Werror all plugins && make -k -j$(nproc) OPT=-O1 WERROR=-Werror $targets" \
        >"$work/bullseye.log" 2>&1 || {
        [ $? -ne 125 ] || { say "no namespace can be had here: passed over"; exit 0; }
        grep -E '^[0-9]+%: |:[FE]:|error|\*\*\*' "$work/bullseye.log"
        exit 1
    }
    say "Debian 11: the program builds, $(count "$work/bullseye.log") suites that touch libraries are green"
    rm -rf "$work/bullseye"
    exit 0
fi

echo "Debian|jansson|PCRE2|SQLite|OpenBLAS|GSL|glibc, gcc|make demo|make test|suites green" >"$work/table"
for suite in ${DEBIANS:-bullseye bookworm trixie sid}; do
    case $suite in
    bullseye) try bullseye 11 ;;
    bookworm) try bookworm 12 ;;
    trixie) try trixie 13 ;;
    *) try "$suite" "$suite" ;;
    esac
done
while IFS='|' read -r debian jansson pcre2 sqlite openblas gsl system demo tests green; do
    printf '%-7s %-8s %-6s %-7s %-9s %-5s %-12s %-10s %-10s %s\n' "$debian" "$jansson" "$pcre2" "$sqlite" "$openblas" "$gsl" \
        "$system" "$demo" "$tests" "$green"
done <"$work/table"
exit "$red"
