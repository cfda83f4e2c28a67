#!/usr/bin/env bash
# container.sh BUILD [MIRROR]: builds experiments/package/Containerfile with buildah, in a chroot and without a registry: its base
# image is made of Debian's packages (mmdebstrap), from the mirror that this machine's apt knows. The image's program then answers as
# BUILD's does. Needs root; `make container-test` runs it, CI does not.
set -euo pipefail
build=$(realpath "$1") mirror=${2:-}
source=$(cd "$(dirname "$0")/.." && pwd)
say() { echo "container: $*"; }
[ "$(id -u)" = 0 ] || { say "chroots want root: nothing was tried"; exit 0; }
for program in buildah mmdebstrap; do
    command -v "$program" >/dev/null || { say "$program is missing: nothing was tried"; exit 0; }
done
# shellcheck disable=SC2016 # apt's own names
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
    grep -v security | head -n 1)
[ -n "$mirror" ] || { say "apt knows no mirror of Debian here: give MIRROR=http://...; nothing was tried"; exit 0; }

place=$(mktemp -d)
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
buildah() { command buildah --root "$place/store" --runroot "$place/run" "$@"; }
trap 'buildah rm -a >/dev/null 2>&1 || true; rm -rf "$place"' EXIT

# The two images that the recipe begins with, under the names that it has for them.
mmdebstrap --quiet --variant=minbase bookworm "$place/base.tar" "$mirror" >"$place/base.log" 2>&1 ||
    { say "Debian 12 cannot be fetched ($(tail -n 1 "$place/base.log")): nothing was tried"; exit 0; }
empty=$(buildah from scratch)
buildah add -q "$empty" "$place/base.tar" / >/dev/null
for name in debian:12 debian:12-slim; do
    buildah commit -q "$empty" "docker.io/library/$name" >/dev/null
done
buildah rm "$empty" >/dev/null
rm "$place/base.tar"

git clone -q "file://$source" "$place/clone" # what a user has: no builds
buildah bud --network host --pull-never -f "$place/clone/experiments/package/Containerfile" -t unmask "$place/clone" \
    >"$place/bud.log" 2>&1 || { tail -n 20 "$place/bud.log" >&2; say "the recipe does not build" >&2; exit 1; }

# shellcheck disable=SC2054 # one word each
ask=(compare --systems dllm-serve,fast-dllm --requests 40 --format csv)
ran=$(buildah from --pull-never unmask)
buildah run "$ran" -- unmask "${ask[@]}" 2>/dev/null >"$place/inside.csv"
"$build/unmask" "${ask[@]}" 2>/dev/null >"$place/outside.csv"
cmp "$place/inside.csv" "$place/outside.csv" || { say "the image's program answers otherwise" >&2; exit 1; }
buildah run "$ran" -- sh -c 'unmask figure dllm-serve-table4 --out /tmp/f && test -s /tmp/f/dllm-serve-table4.pdf' >/dev/null 2>&1 ||
    { say "the image draws no figure" >&2; exit 1; }
say "built; the image's program answers as this build's does, and draws a figure"
