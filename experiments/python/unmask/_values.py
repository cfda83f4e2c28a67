"""Values as Python people hand them, as the words that the program reads. What cannot be meant is refused by its name."""

import collections.abc
import datetime
import decimal
import enum
import fractions
import numbers
import os
import re

from unmask._errors import UsageError
from unmask._options import OPTIONS
from unmask._policy import Policy
from unmask._trace import Trace, microseconds_of

_MOST_CHARS = 190
# Options that take all their pairs at once, such as GPU=PRICE,...; others are given once for each.
_PAIRS = {name for of in OPTIONS.values() for name, value, _ in of if re.fullmatch(r"[^,]+=[^,]+,\.\.\.", value or "")} - {"set"}
_FILES = ("models", "gpus", "workloads", "set.scheduler", "set.cache", "set.decoder", "set.router", "set.runtime", "set.planner",
          "set.host")


def _plain(value):
    """A scalar of numpy, of a tensor library or of an Enum as what it stands for."""
    while isinstance(value, enum.Enum) or (getattr(value, "ndim", None) == 0 and hasattr(value, "item")):
        if isinstance(value, enum.Enum):
            value = value.value
        elif type(value).__module__ == "numpy" and getattr(value, "dtype", None) is not None and value.dtype.kind in "fmM":
            return value
        else:
            value = value.item()
    return value


def _kind(value):
    module = type(value).__module__
    return type(value).__name__ if module == "builtins" else f"{module}.{type(value).__name__}"


def text(value, name, policies):
    """One value of the option or key `name` as a word."""
    value = _plain(value)
    if isinstance(value, Policy):
        return policies.path_of(value)
    if isinstance(value, Trace):
        return value.path
    if isinstance(value, type):
        raise UsageError(f"{name}: {value.__name__} is a class, expected a value or an instance, as {value.__name__}()")
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        raise UsageError(f"{name}: {value} is no value")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, os.PathLike)):
        return os.fsdecode(value)
    if isinstance(value, datetime.timedelta) or getattr(getattr(value, "dtype", None), "kind", "") == "m":
        length = microseconds_of(value)
        if length is None:
            raise UsageError(f"{name}: {value!r} is not a time")
        return f"{length}us"
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return format(value, "f")
    if isinstance(value, fractions.Fraction):
        return repr(float(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real) or getattr(getattr(value, "dtype", None), "kind", "") == "f":
        return str(value) if hasattr(value, "dtype") else repr(float(value))
    raise UsageError(f"{name}: a {_kind(value)} is not a value that an option can have")


def is_many(value):
    """Whether a value is several: a list, an array, a column, a view or an iterator of any kind."""
    if isinstance(value, (Policy, Trace, str, bytes, os.PathLike, type, enum.Enum)):
        return False
    return getattr(value, "ndim", 1) != 0 and isinstance(value, collections.abc.Iterable)


def many(value, name):
    """The values of a list; one value is a list of one."""
    if not is_many(value):
        return [value]
    if isinstance(value, collections.abc.Mapping) or getattr(value, "ndim", 1) > 1 or hasattr(value, "iterrows") or (
            hasattr(value, "iter_rows")):
        raise UsageError(f"{name}: a {_kind(value)} is not a list of values; one of its columns is")
    values = list(value)
    if isinstance(value, collections.abc.Set) and not isinstance(value, collections.abc.KeysView):
        values.sort(key=lambda one: (not isinstance(_plain(one), numbers.Real), _plain(one) if isinstance(
            _plain(one), numbers.Real) else str(one)))
    if not values:
        raise UsageError(f"{name}: there is no value in it")
    return values


def arguments(options, policies):
    """The words of the command line for keyword arguments."""
    words = []
    for name, value in sorted(options.items(), key=lambda option: option[0] == "against"):  # last, by who is compared
        value = _plain(value)
        if value is None or value is False:
            continue
        flag = ("-" if len(name) == 1 else "--") + name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(flag)
        elif isinstance(value, collections.abc.Mapping):
            pairs = []
            for key, inner in value.items():
                where = f"{name}={{{key!r}: ...}}"
                pairs.append(f"{text(key, where, policies)}={_joined(inner, where, policies)}")
            for pair in [",".join(pairs)] if flag[2:] in _PAIRS else pairs:
                words += [flag, pair]
        elif name == "against" and isinstance(value, str):
            words += [flag, policies.against(value)]
        elif name == "slo":
            for inner in many(value, name):
                words += [flag, text(inner, name, policies)]
        else:
            words += [flag, _joined(value, name, policies)]
    return words


def _joined(value, name, policies):
    return ",".join(text(inner, name, policies) for inner in many(value, name))


def _from_here(name, word):
    """A path as it is from any folder: the file of a grid, which begins paths at its own, lies elsewhere."""
    is_file = "/" in word and name in _FILES or name == "workloads" and "." in word
    return os.path.abspath(word) if is_file else word


def sweep_file(axes, policies):
    """The [sweep] file of a grid: a value a line, so that there may be any number of them."""
    lines = ["[sweep]"]
    for name, values in axes.items():
        listed = [word.strip() for word in values.split(",")] if isinstance(values, str) else many(values, name)
        words = [_from_here(name, text(value, name, policies)) for value in listed]
        for word in words:
            if re.search(r"[,;\n\r]|^#|^$", word) or len(word.encode()) > _MOST_CHARS:
                raise UsageError(f"{name}: '{word[:60]}' cannot be in a list: it is empty, longer than {_MOST_CHARS} bytes or "
                                 "holds a comma, a semicolon or the end of a line")
        lines.append(f"{name} =")
        lines += [f" {word}," for word in words[:-1]] + [f" {words[-1]}"]
    return "\n".join(lines) + "\n"
