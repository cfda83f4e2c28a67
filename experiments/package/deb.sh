#!/bin/sh
# deb.sh FOLDER VERSION ARCH: writes FOLDER/root/DEBIAN/control for what is installed in FOLDER/root. The
# libraries that the program needs are found by dpkg-shlibdeps.
set -eu
folder=$1 version=$2 arch=$3
printf 'Source: unmask\n\nPackage: unmask\nArchitecture: %s\n' "$arch" >"$folder/debian/control"
depends=$(cd "$folder" && dpkg-shlibdeps -O root/usr/bin/unmask 2>/dev/null | sed 's/^shlibs:Depends=//')
mkdir -p "$folder/root/DEBIAN"
cat >"$folder/root/DEBIAN/control" <<END
Package: unmask
Version: $version
Architecture: $arch
Maintainer: ${DEBFULLNAME:-unmask maintainers} <${DEBEMAIL:-root@localhost}>
Installed-Size: $(du -ks "$folder/root/usr" | cut -f1)
Depends: $depends, libopenblas0
Recommends: gnuplot-nox | gnuplot
Suggests: gcc, libmicrohttpd12
Section: science
Priority: optional
Description: simulator for serving diffusion language models
 What happens to throughput, latency and memory when this traffic is served by
 this diffusion language model on this GPU under this policy: answered by
 simulation on measured operator times, and by running the same schedule on a
 CPU or a GPU.
END
