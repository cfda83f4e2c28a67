#!/usr/bin/env python3
"""python_test.py WHEEL FOLDER: the wheel under every Python and pandas that it is for; `make python-test`.

In a virtual environment of its own each installs the wheel, runs all suites and the tutorial, and where Jupyter is, the
tutorial's cells as a notebook in a real kernel. A Python is found on PATH or among those of pyenv and uv, or fetched by uv
from PyPI; one that is not found is said and passed over. Ends with a table and, where something was red, status 1."""

import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
OLD, NEW = ["pandas==2.0.*", "numpy<2"], ["pandas>=3", "polars", "tqdm"]
JUPYTER = ["nbclient", "nbformat", "ipykernel"]
MATRIX = [("3.9", [*OLD, "polars", *JUPYTER]), ("3.11", OLD), ("3.11", NEW), ("3.13", [*NEW, *JUPYTER])]
LIMIT_S = 900  # of one suite

NOTEBOOK = """
import json, pathlib, re, sys
import nbclient, nbformat
cells = [nbformat.v4.new_code_cell(part.partition("\\n")[2].strip())
         for part in re.split(r"^# %%", pathlib.Path(sys.argv[1]).read_text(), flags=re.M)[1:] if not part.startswith(" [markdown]")]
cells.append(nbformat.v4.new_code_cell("unmask.run(requests=400000)"))
book = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
shown = ["".join(o.get("text", "") or str(o.get("data", {}).get("text/plain", "")) for o in cell.outputs) for cell in book.cells]
assert "p99 latency" in shown[0] and "shortest first" in shown[-2], shown
assert "<Run of " in shown[-1] and "requests" in shown[-1].partition("<Run of ")[0], shown[-1]  # a bar, then the run
print(f"{len(cells)} cells")
"""


def works(path, version):
    said = subprocess.run([path, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True)
    return said.returncode == 0 and said.stdout.strip() == version


def found(version, folder):
    """The path of that Python, or None."""
    home = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for path in (shutil.which(f"python{version}"), sys.executable, f"/usr/bin/python{version}",
                 *sorted(glob.glob(f"{home}/versions/{version}.*/bin/python"), reverse=True)):
        if path and os.path.exists(path) and works(path, version):
            return path
    return fetched(version, folder)


def fetched(version, folder):
    """By uv, which brings Pythons of its own."""
    uv = shutil.which("uv")
    try:
        if uv is None:
            subprocess.run([sys.executable, "-m", "venv", folder / "uv"], check=True, capture_output=True)
            subprocess.run([folder / "uv/bin/pip", "install", "-q", "uv"], check=True, capture_output=True, timeout=120)
            uv = folder / "uv/bin/uv"
        environment = {**os.environ, "UV_PYTHON_INSTALL_DIR": str(folder / "pythons"), "UV_HTTP_TIMEOUT": "30"}
        subprocess.run([uv, "python", "install", version], check=True, capture_output=True, timeout=300, env=environment)
    except (subprocess.SubprocessError, OSError):
        return None
    return next((path for path in glob.glob(f"{folder}/pythons/*/bin/python{version}") if works(path, version)), None)


def run(words, log, folder):
    with open(log, "a") as out:
        try:
            return subprocess.run(words, stdout=out, stderr=out, cwd=folder, timeout=LIMIT_S).returncode == 0
        except subprocess.TimeoutExpired:
            return False


def versions(python):
    code = ("import importlib.metadata as m, json, sys\ndef v(n):\n    try: return m.version(n)\n    except Exception: return '-'\n"
            "print(json.dumps([sys.version.split()[0], *map(v, ('pandas', 'numpy', 'polars'))]))")
    return json.loads(subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout)


def row(version, packages, wheel, folder):
    """(cells of the table, whether all was green)"""
    base = found(version, folder)
    if base is None:
        return [f"{version}: not found", *"-------"], True
    since, place = time.monotonic(), folder / f"{version}-{'old' if packages[0] == OLD[0] else 'new'}"
    place.mkdir(exist_ok=True)
    python, log = place / "venv/bin/python", place / "log"
    log.unlink(missing_ok=True)
    made = run([base, "-m", "venv", place / "venv"], log, place) and all(
        run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *what], log, place)
        for what in (packages, ["--force-reinstall", "--no-deps", wheel]))
    if not made:
        return [version, *packages[:1], "-", "-", f"not installed: {log}", "-", "-", f"{time.monotonic() - since:.0f}"], False
    suites = sorted(HERE.glob("test_*.py"))
    red = [suite.stem for suite in suites if not run([python, "-I", suite], log, place)]
    (place / "results.db").unlink(missing_ok=True)
    tutorial = run([python, "-I", HERE / "tutorial.py"], log, place)
    (place / "results.db").unlink(missing_ok=True)
    notebook = run([python, "-I", "-c", NOTEBOOK, HERE / "tutorial.py"], log, place) if "nbclient" in packages else None
    cells = [*versions(python), f"red: {', '.join(red)}" if red else f"{len(suites)} green", "ran" if tutorial else "RED",
             {None: "-", True: "ran", False: "RED"}[notebook], f"{time.monotonic() - since:.0f}"]
    return cells, not red and tutorial and notebook is not False


def main():
    wheel, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print("| Python | pandas | numpy | polars | suites | tutorial | notebook | s |\n|---|---|---|---|---|---|---|---|", flush=True)
    is_green = True
    for version, packages in MATRIX:
        cells, is_well = row(version, packages, wheel, folder)
        is_green = is_green and is_well
        print(f"| {' | '.join(cells)} |", flush=True)
    if not is_green:
        print(f"python-test: red; what was said is in {folder}/*/log", file=sys.stderr)
    return 0 if is_green else 1


if __name__ == "__main__":
    sys.exit(main())
