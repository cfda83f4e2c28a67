#!/usr/bin/env bash
# wheel_oldest.sh WHEEL [MIRROR]: the wheel in a fresh chroot of the oldest Debian that the mirror of this machine's apt
# serves: what Python is there imports it, runs a simulation, a policy of its own and the CPU back end, and gets the bytes that this
# machine gets. Needs root and mmdebstrap; `make wheel-oldest` runs it. glibc 2.28 itself (Debian 10, RHEL 8) is not served any more.
set -euo pipefail
wheel=$(realpath "$1") mirror=${2:-}
say() { echo "wheel-oldest: $*"; }
[ "$(id -u)" = 0 ] || { say "a chroot wants root: nothing was tried"; exit 0; }
command -v mmdebstrap >/dev/null || { say "mmdebstrap is missing: nothing was tried"; exit 0; }
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
    grep -v security | head -n 1)
folder=$(mktemp -d)
root=$folder/root
trap 'rm -rf "$folder"' EXIT
for suite in buster bullseye bookworm; do
    rm -rf "$root"
    mmdebstrap --quiet --variant=minbase --include=python3-minimal,python3 --aptopt='Acquire::Check-Valid-Until "false"' \
        "$suite" "$root" "$mirror" >"$folder/fetch.log" 2>&1 && break
    say "$suite is not served ($(tail -n 1 "$folder/fetch.log"))"
done
[ -e "$root/usr/bin/python3" ] || { say "no Debian could be fetched: nothing was tried"; exit 0; }
cat >"$folder/try.py" <<'END'
import json, sys
import unmask

class InOrder(unmask.Scheduler):
    def schedule(self, view, batch):
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        for request in view.waiting:
            batch.admit(request)

found = [unmask.run(gpu="l40s", requests=40, rate=0.4, scheduler=scheduler) for scheduler in ("continuous", InOrder())]
found.append(unmask.run(backend="cpu", model="llada-tiny", system="fast-dllm", clock="virtual", requests=2, input_tokens=16, output_tokens=16))
for one in found:
    one.pop("identity"), one.pop("policies")
json.dump([found[0], found[1], found[2]["tokens_committed"]], sys.stdout, sort_keys=True)
END
mkdir -p "$root/wheel" "$folder/here"
cp "$folder/try.py" "$root/wheel"
for place in "$root/wheel" "$folder/here"; do python3 -m zipfile -e "$wheel" "$place" && chmod +x "$place/unmask/bin/unmask"; done
PYTHONPATH=$folder/here python3 "$folder/try.py" >"$folder/here.json"
unshare --mount --pid --fork --kill-child sh -c '
    mount --make-rprivate / && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/tmp" &&
    exec chroot "$1" env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 PYTHONPATH=/wheel python3 /wheel/try.py' _ "$root" \
    >"$folder/there.json" </dev/null
cmp "$folder/here.json" "$folder/there.json"
say "$(basename "$wheel") ran in Debian $(cat "$root/etc/debian_version"), glibc $(chroot "$root" ldd --version | sed -n '1s/.* //p'): the same bytes as here"
