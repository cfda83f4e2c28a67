"""Signatures of functions that stand for commands, and what their parameters mean, from the program's own tables."""

import inspect
import keyword
import textwrap

from unmask._options import OPTIONS


def _parameter(name):
    name = name.replace("-", "_")
    return name + "_" if keyword.iskeyword(name) else name


def options_of(command, lists=(), without=()):
    """A decorator: the function takes the options of `command`, all but those named in `without`, and `lists`, pairs of a
    name and what it means."""

    def put(function):
        own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        known = {p.name: p for p in own}
        rows = [(name, "LIST", meaning) for name, meaning in lists]
        rows += [(_parameter(name), value, meaning) for name, value, meaning in OPTIONS[command] if name not in without]
        for name, value, _ in rows:
            known.setdefault(name, inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY,
                                                     default=False if value is None else None))
        function.__signature__ = inspect.Signature(list(known.values()))
        body = "\n".join(textwrap.fill(f"{name}: {meaning}", 100, subsequent_indent="    ") for name, _, meaning in rows)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__)}\n\nParameters\n----------\n{body}\n"
        return function

    return put
