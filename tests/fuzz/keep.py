"""keep.py PROGRAM READER BYTES FOLDER...: keeps in tests/fuzz/corpus/READER.ar the inputs of the folders that
together reach most of the program, at most FILES of them and BYTES in all; smaller ones first. Cases there
whose names begin with "found-" stay: something was wrong with them once. `make fuzz` unpacks the archive into
build/fuzz/seeds/READER and leaves what it finds in build/fuzz/corpus/READER. One case is added by hand with
`ar rDS tests/fuzz/corpus/READER.ar CASE`."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

FILES = 24


def new_edges(program, reader, folders):
    """(edges that no smaller file reaches, path) of every file."""
    with tempfile.TemporaryDirectory() as scratch:
        control = f"{scratch}/control"
        os.mkdir(f"{scratch}/none")
        subprocess.run(
            [program, "-merge=1", f"-merge_control_file={control}", f"{scratch}/none", *folders],
            env=dict(os.environ, UNMASK_READER=reader), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd=scratch, check=True)
        lines = open(control).read().split("\n")
    paths = lines[2:2 + int(lines[0])]
    found = {}
    for line in lines[2 + int(lines[0]):]:
        words = line.split()
        if words and words[0] in ("FT", "COV"):
            found.setdefault(int(words[1]), {})[words[0]] = len(words) - 2
    return sorted(((marks.get("COV", 0), marks.get("FT", 0), paths[i]) for i, marks in found.items()),
                  reverse=True)


def main():
    program, reader, most, folders = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    chosen = []
    for edges, features, path in new_edges(os.path.abspath(program), reader,
                                           [os.path.abspath(folder) for folder in folders]):
        data = open(path, "rb").read()
        if len(chosen) < FILES and len(data) <= most and edges + features > 0:
            chosen.append(data)
            most -= len(data)
    target = os.path.abspath(f"tests/fuzz/corpus/{reader}.ar")
    with tempfile.TemporaryDirectory() as scratch:
        if os.path.exists(target):
            subprocess.run(["ar", "x", target], cwd=scratch, check=True)
        for name in os.listdir(scratch):
            if not name.startswith("found-"):
                os.remove(f"{scratch}/{name}")
        for data in chosen:
            with open(f"{scratch}/{hashlib.sha1(data).hexdigest()[:12]}", "wb") as file:
                file.write(data)
        subprocess.run(["ar", "rcDS", "new.ar", *sorted(os.listdir(scratch))], cwd=scratch, check=True)
        shutil.move(f"{scratch}/new.ar", target)
    print(f"{reader}: {len(chosen)} inputs, {sum(map(len, chosen))} bytes")


main()
