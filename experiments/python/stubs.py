#!/usr/bin/env python3
"""stubs.py: prints unmask/__init__.pyi, the types of what the module has, made from the signatures that the program's tables of
options make; `make reference` keeps it. Editors and type checkers read it."""

import inspect
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import unmask  # noqa: E402
from unmask import _signatures  # noqa: E402
from unmask._options import OPTIONS  # noqa: E402

HEAD = '''"""Made by `make reference` from the program's tables: see experiments/python/stubs.py."""

import datetime
import os
import pathlib
from typing import Any, Iterable, Mapping, Optional, Union

from matplotlib.axes import Axes
from pandas import DataFrame

from unmask._errors import Error as Error, PolicyError as PolicyError, UsageError as UsageError
from unmask._figure import Figure as Figure
from unmask._policy import Cache as Cache, Decoder as Decoder, Router as Router, Scheduler as Scheduler
from unmask._results import Run as Run
from unmask._trace import Trace as Trace
from unmask._view import Phase as Phase

_Path = Union[str, "os.PathLike[str]"]
_Time = Union[str, datetime.timedelta]
_Words = Union[str, Iterable[Any]]

__version__: str
'''
TYPES = {"N": "int", "R": "float", "PERCENT": "float", "TIME": "_Time", "FILE": "_Path", "FOLDER": "_Path", "DIR": "_Path",
         "PATH": "_Path", "LIST": "Any", "KEY=VALUE": "Mapping[str, Any]", "KEY=VALUE,...": "Mapping[str, Any]",
         "KEY=A,B,...": "Mapping[str, Any]", "TERMS": "_Words", "GPU=PRICE,...": "Union[_Words, Mapping[str, Any]]",
         "NAME=VALUE,...": "Union[_Words, Mapping[str, Any]]", "time=NAME:UNIT,...": "Union[_Words, Mapping[str, Any]]"}
# What takes an object of this module besides its word.
OBJECTS = {"scheduler": "Union[str, Scheduler]", "cache": "Union[str, Cache]", "decoder": "Union[str, Decoder]",
           "router": "Union[str, Router]", "workload": "Union[_Path, Trace]", "gpu": "_Path", "model": "_Path", "host": "_Path",
           "runtime": "_Path"}
RETURNS = {"run": "Run", "compare": "DataFrame", "capacity": "DataFrame", "sweep": "DataFrame", "figure": "Figure",
           "bound": "Any", "explain": "Any"}
REST = '''

def call(command: str, *words: Any, **options: Any) -> Any: ...
def cite(db: _Path, run: Optional[int] = None) -> str: ...
def listing(what: str) -> DataFrame: ...
def plot(table: Union[DataFrame, _Path], x: str, y: str, by: Union[None, str, Iterable[str]] = None, ax: Optional[Axes] = None,
         against: Optional[str] = None, **style: Any) -> Axes: ...
def program() -> str: ...
def read(db: _Path, table: str = "runs") -> DataFrame: ...
def report(db: _Path, out: _Path = "report.html") -> pathlib.Path: ...
'''


def type_of(name, value):
    """Of a parameter for which `value` stands on the command line; None: a flag."""
    if value is None:
        return "bool", "False"
    kind = OBJECTS.get(name) or TYPES.get(value) or ("_Words" if "," in value else "str")
    return f"Optional[{kind}]", "None"


def stub(name):
    values = {_signatures._parameter(option): value for option, value, _ in OPTIONS[name]}
    words, star = [], False
    for p in inspect.signature(getattr(unmask, name)).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not star:
            words.append("*")
            star = True
        if p.name == "name":
            words.append("name: _Path")
            continue
        kind, default = type_of(p.name, values.get(p.name, "KEY=VALUE" if p.name == "set" else "LIST"))
        words.append(f"{p.name}: {kind} = {default}")
    lines, line = [], f"def {name}("
    for word in words:
        if len(line) + len(word) > 118:
            lines.append(line.rstrip())
            line = "    "
        line += word + ", "
    return "\n".join([*lines, line[:-2] + f") -> {RETURNS[name]}: ..."])


def text():
    named = re.findall(r"^def (\w+)", REST, re.M)
    missing = [name for name in unmask.__all__ if name not in (*RETURNS, *named) and f" {name} as {name}" not in HEAD]
    assert not missing, missing
    return HEAD + "\n\n" + "\n".join(stub(name) for name in RETURNS) + REST


if __name__ == "__main__":
    print(text(), end="")
