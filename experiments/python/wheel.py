#!/usr/bin/env python3
"""wheel.py STAGED VERSION OUT GLIBC: packs a wheel from STAGED/unmask, a prefix of `make install` beside the module's files.

A wheel is a zip file whose RECORD lists every file with its digest; times are fixed, so that the same files make the same
bytes. Its platform is this machine's, with the newest glibc symbol that the program and the shared objects need; where that is
newer than GLIBC (host: any may be), the symbols are named and nothing is packed."""

import base64
import hashlib
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

METADATA = """Metadata-Version: 2.1
Name: unmask
Version: {version}
Summary: What happens when a diffusion language model serves this traffic on this GPU under this policy?
License: GPL-3.0-or-later
Requires-Python: >=3.9
Provides-Extra: pandas
Requires-Dist: pandas>=2.0; extra == "pandas"
Provides-Extra: plot
Requires-Dist: pandas>=2.0; extra == "plot"
Requires-Dist: matplotlib>=3.5; extra == "plot"
"""


def newest_glibc(files, most):
    """The newest version that a symbol of these files is of; `most` None: it may be any."""
    needed = {}
    for file in files:
        said = subprocess.run(["objdump", "-T", file], capture_output=True, text=True, check=True).stdout
        for major, minor, symbol in re.findall(r"GLIBC_(\d+)\.(\d+)[.\d]*\)?\s+(\S+)$", said, re.M):
            needed.setdefault((int(major), int(minor)), set()).add(f"{symbol} of {file.name}")
    newer = sorted(name for version, names in needed.items() if most and version > most for name in names)
    if newer:
        sys.exit(f"wheel.py: newer than glibc {most[0]}.{most[1]} are {', '.join(newer)}")
    return max([(2, 17), *needed])


def main():
    staged, version, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    files = sorted(p for p in staged.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    most = None if sys.argv[4] == "host" else tuple(map(int, sys.argv[4].split(".")))
    needs = newest_glibc([p for p in files if p.suffix == ".so" or p.parts[-2:] == ("bin", "unmask")], most)
    tag = f"py3-none-manylinux_{needs[0]}_{needs[1]}_{platform.machine()}"
    info = f"unmask-{version}.dist-info"
    made = {
        f"{info}/METADATA": METADATA.format(version=version),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: unmask\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{info}/entry_points.txt": "[console_scripts]\nunmask = unmask.__main__:main\n",
    }
    path = out / f"unmask-{version}-{tag}.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")

        for file in files:
            is_program = file.parts[-2:] == ("bin", "unmask")
            add(str(file.relative_to(staged)), file.read_bytes(), 0o755 if is_program else 0o644)
        for name, text in made.items():
            add(name, text.encode(), 0o644)
        add_record = "\n".join(record + [f"{info}/RECORD,,"]) + "\n"
        entry = zipfile.ZipInfo(f"{info}/RECORD")
        entry.external_attr = 0o100644 << 16
        wheel.writestr(entry, add_record)
    print(path)


main()
