#!/usr/bin/env python3
"""Makes the measured profiles that are shipped (kernels/profiles/GPU/MODEL.csv) again, from the calibrations in
experiments/gpu/calibrations, without a network or a GPU, and says where what comes out differs from what is shipped.

    make profiles                                    all, into build/profiles
    profiles.py BUILD OUT [GPU/MODEL...]             BUILD holds refit (make build/refit)

An archive holds MANIFEST.json and of each calibration what `unmask calibrate` wrote: the profile and the report (--json).
Digests are compared first. refit makes one profile of them; two things are added that a calibration does not measure:
what passes between submissions (of live runs) and, in mixtures, how many experts were hit. Exit status 1 where a row
differs by more than TOLERANCE that the manifest does not name.
"""
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ARCHIVES = os.path.join(HERE, "calibrations")
TOLERANCE = 1e-4  # of a number; the fit of power stops at about 1e-6, which others of libm and compilers move


def unpack(name, folder):
    """The manifest, and refit's arguments: the archive's files under folder, their digests as the manifest says."""
    with tarfile.open(os.path.join(ARCHIVES, name + ".tar.xz")) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    manifest, arguments = json.loads(files.pop("MANIFEST.json")), []
    wanted = {"experts_hit.csv": manifest["experts_hit"]["sha256"]} if "experts_hit" in manifest else {}
    for one in manifest["calibrations"]:
        wanted.update({f"{one['name']}/{file}": digest for file, digest in one["sha256"].items()})
        host = "host:" if one["host_under_load"] else ""
        arguments += [f"{host}{folder}/{one['name']}/profile.csv", f"{folder}/{one['name']}/report.json"]
    found = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    for file in sorted(set(wanted) | set(found)):
        if wanted.get(file) != found.get(file):
            sys.exit(f"{name}: {file} is not what the manifest says")
    for file, content in files.items():
        os.makedirs(os.path.dirname(f"{folder}/{file}"), exist_ok=True)
        with open(f"{folder}/{file}", "wb") as out:
            out.write(content)
    return manifest, arguments, files.get("experts_hit.csv", b"").decode()


def with_hits(line, hits):
    """A row of experts with the number that they hit: before its time, behind its factor."""
    fields = line.split(",")
    key, at = (",".join(fields[:-1]), -1) if fields[0] in ("moe", "load") else ("", 0)
    if key not in hits:
        return line
    fields.insert(len(fields) if fields[0] == "load" else at, hits[key])
    return ",".join(fields)


def add(text, manifest, hits):
    """The profile with what no calibration of it measured."""
    lines, between = [], manifest["between"]
    for line in text.splitlines():
        if line.startswith(("# rows:", "# between:", "between,")):
            continue
        if line.startswith("host,") and between["row"] not in lines:
            lines.append(between["row"])
        if line[0] != "#" and between["note"] not in lines:
            lines.append(between["note"])
        lines.append(with_hits(line, hits))
        if line.startswith("# weights:") and hits:
            lines.append(manifest["experts_hit"]["note"])
    lines.insert(1, f"# rows: {sum(line[0] != '#' for line in lines)}")
    return "\n".join(lines) + "\n"


def numbers(text):
    """{what a row is of: its numbers}; a row of a profile ends in one number, or in two of experts'."""
    rows = {}
    for line in text.splitlines():
        if line[0] != "#":
            fields = line.split(",")
            n = 2 if fields[0] == "host" or fields[0] == "load" and len(fields) == 6 else 1
            rows[",".join(fields[:-n])] = [float(field) for field in fields[-n:]]
    return rows


def differences(made, shipped):
    """{row: the largest relative difference}; inf where only one of them has it."""
    made, shipped = numbers(made), numbers(shipped)
    found = {row: float("inf") for row in set(made) ^ set(shipped)}
    for row in set(made) & set(shipped):
        pairs = list(zip(made[row], shipped[row]))
        found[row] = max(abs(a - b) / abs(b) if b else abs(a) for a, b in pairs)
    return found


def make(build, out, name):
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    manifest, arguments, counted = unpack(name, folder)
    hits = {row["row"]: row["experts_hit"] for row in csv.DictReader(io.StringIO(counted))}
    environment = dict(os.environ, UNMASK_DATA=os.environ.get("UNMASK_DATA", ROOT))
    done = subprocess.run([os.path.join(build, "refit"), folder + ".csv", *arguments], env=environment,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr}")
    with open(folder + ".csv") as file:
        made = add(file.read(), manifest, hits)
    with open(folder + ".csv", "w") as file:
        file.write(made)
    with open(os.path.join(ROOT, manifest["profile"])) as file:
        shipped = file.read()
    otherwise = manifest.get("fitted_otherwise_since", {"rows": []})
    found = differences(made, shipped)
    wrong = sorted(row for row in found if found[row] > TOLERANCE and row not in otherwise["rows"])
    few = sum(difference > 0 for difference in found.values())
    print(f"{name}: {len(manifest['calibrations'])} calibrations, " +
          ("as shipped, byte for byte" if made == shipped else
           f"{few} of {len(found)} rows differ, by at most {max(found.values()):.1g}" if few else
           "rows as shipped, in the lines before them digits of errors differ") +
          ("".join(f"\n    {row}: {found[row]:.2g}" for row in wrong)))
    return not wrong


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    names = sys.argv[3:] or sorted(f"{gpu}/{file[:-len('.tar.xz')]}" for gpu in os.listdir(ARCHIVES)
                                   if os.path.isdir(os.path.join(ARCHIVES, gpu))
                                   for file in os.listdir(os.path.join(ARCHIVES, gpu)) if file.endswith(".tar.xz"))
    sys.exit(0 if all([make(sys.argv[1], sys.argv[2], name) for name in names]) else 1)
