"""Which inputs tests/fuzz/corpus.tar.gz keeps, a folder for each reader.

    keep.py PROGRAM READER BYTES FOLDER...  keep the inputs of the folders that together reach most of the program, at most
                                            FILES of them and BYTES in all; smaller ones first
    keep.py --add READER FILE...            keep these as well

`make fuzz` unpacks the archive into build/fuzz/seeds/READER and leaves what it finds in build/fuzz/corpus/READER. Cases
whose names begin with "found-" stay: something was wrong with them once."""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile

ARCHIVE = "tests/fuzz/corpus.tar.gz"
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


def read_cases():
    """{(reader, name): bytes}"""
    with tarfile.open(ARCHIVE) as archive:
        return {tuple(member.name.split("/")): archive.extractfile(member).read() for member in archive}


def write_cases(cases):
    """The same cases give the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for (reader, name), data in sorted(cases.items()):
            member = tarfile.TarInfo(f"{reader}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    with open(ARCHIVE, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(plain.getvalue())


def chosen_inputs(program, reader, most, folders):
    chosen = []
    for edges, features, path in new_edges(os.path.abspath(program), reader,
                                           [os.path.abspath(folder) for folder in folders]):
        data = open(path, "rb").read()
        if len(chosen) < FILES and len(data) <= most and edges + features > 0:
            chosen.append(data)
            most -= len(data)
    return chosen


def main():
    cases = read_cases()
    if sys.argv[1] == "--add":
        reader, files = sys.argv[2], sys.argv[3:]
        cases |= {(reader, os.path.basename(path)): open(path, "rb").read() for path in files}
    else:
        reader = sys.argv[2]
        chosen = chosen_inputs(sys.argv[1], reader, int(sys.argv[3]), sys.argv[4:])
        cases = {key: data for key, data in cases.items() if key[0] != reader or key[1].startswith("found-")}
        cases |= {(reader, hashlib.sha1(data).hexdigest()[:12]): data for data in chosen}
    write_cases(cases)
    kept = [data for key, data in cases.items() if key[0] == reader]
    print(f"{reader}: {len(kept)} inputs, {sum(map(len, kept))} bytes")


main()
