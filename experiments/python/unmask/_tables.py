"""DataFrames whose columns know their units, and their plots."""

import re
import warnings

from unmask._errors import Error, UsageError

# Of what is no field of a run: by how its name ends.
_ENDINGS = (("_req_s", "requests/s"), ("_tok_s", "tokens/s"), ("_ns", "ns"), ("_us", "us"), ("_s", "s"), ("_bytes", "bytes"),
            ("_tokens", "tokens"), ("_share", "share"), ("dollars_per_1000_requests", "dollars"))
_AROUND = re.compile(r"^(spread|differences?|at_capacity|first_missed)\.|\.(mean|low|high)$")


class Missing(Error, ImportError):
    """A package that this module can do without is not installed."""


def needed(name, what):
    """The package of that name, without which `what` cannot be done."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as trouble:
        package = name.partition(".")[0]
        raise Missing(f"{what} needs {package}, which cannot be imported ({trouble}): pip install {package}") from None


class Fields:
    """What the program says of each field of a run: its unit and how it is called."""

    _known = {}  # by program

    def __init__(self, program, listed):
        """`listed()`: rows of `unmask list fields`."""
        if program not in self._known:
            self._known[program] = {row["field"]: (row["unit"], row["label"]) for row in listed()}
        self._fields = self._known[program]

    def _found(self, column):
        """What is said of a column, of what it is a part of, or of what is written around it."""
        for name in (column, _AROUND.sub("", column)):
            while name:
                if name in self._fields:
                    return name, self._fields[name]
                name = name.rpartition(".")[0]
        return "", ("", "")

    def unit(self, column):
        unit = self._found(column)[1][0]
        if unit:
            return unit
        parts = column.split(".")
        return next((unit for part in reversed(parts) for ending, unit in _ENDINGS if part.endswith(ending)), "")

    def label(self, column):
        """As it stands at an axis."""
        name, (_, label) = self._found(column)
        rest = column[len(name) + 1:] if name and column.startswith(name) else ""
        label = f"{rest} {label}".strip() if label else column
        unit = self.unit(column)
        return f"{label} ({unit})" if unit else label


def frame_of(rows, fields, what, **attrs):
    """Rows of dicts as a DataFrame: `attrs["units"]` has a unit for each column that has one."""
    frame = needed("pandas", what).json_normalize(rows)
    frame.attrs.update(attrs)
    return with_units(frame, fields)


def with_units(frame, fields):
    numbers = [str(column) for column in frame.columns if not (_is_words(frame[column]) or frame[column].dtype.kind == "b")
               or frame[column].isna().all() and not str(column).endswith(".differs")]
    money = frame.attrs.get("cost_unit", "")  # a capacity's, in dollars an hour or in GPUs
    frame.attrs["units"] = {column: unit for column in numbers
                            for unit in [money if column.partition(".")[0] in ("cost", "cost_by_seed") else fields.unit(column)]
                            if unit}
    return frame


# Student's t at 97.5 % by degrees of freedom; between those it is near linear in their inverse.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179, 15: 2.131,
      20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980, 10**9: 1.960}


def t_quantile(n_free):
    known = sorted(_T)
    above = next(n for n in known if n >= n_free)
    if above == n_free:
        return _T[above]
    below = max(n for n in known if n < n_free)
    share = (1 / below - 1 / n_free) / (1 / below - 1 / above)
    return _T[below] + share * (_T[above] - _T[below])


def _is_words(values):
    return values.dtype == object or values.dtype.name in ("str", "string", "category")


def _check_alike(points, keys, varied):
    """Runs that differ in more than the seed are no one point."""
    def differs(rows):
        return rows["setup"].nunique() > 1 if "setup" in rows else rows["seed"].duplicated().any() if "seed" in rows else len(rows) > 1

    for place, rows in points:
        if differs(rows):
            told = [name for name in varied if name in rows and name not in (*keys, "seed") and rows[name].map(repr).nunique() > 1]
            told = next(([name] for name in told if not any(differs(part) for _, part in rows.groupby(rows[name].map(repr)))), told)
            place = ", ".join(f"{key} = {value}" for key, value in zip(keys, place if isinstance(place, tuple) else (place,)))
            raise UsageError(f"plot: {len(rows)} rows at {place} differ in more than the seed: "
                             f"{'by=' + repr(told[0] if len(told) == 1 else told) if told else 'a column in by='} tells them apart")


def _differences(table, x, y, keys, against):
    """The rows that are not of `against`, KEY=VALUE, with y less what the row of it with the same seed and settings has."""
    key, equals, value = (word.strip() for word in against.partition("=")) if isinstance(against, str) else ("", "", "")
    if not equals:
        raise UsageError(f"plot: against={against!r} is no text KEY=VALUE, such as \"scheduler=look-ahead\"")
    if key not in table or key == x:
        raise UsageError(f"plot: against={against!r}: {'the axis x is' if key == x else 'there is no column'} {key!r}")
    words = table[key].map(str)
    if value not in set(words):
        raise UsageError(f"plot: against={against!r}: no row has it; there is {', '.join(dict.fromkeys(words))}")
    varied = table.attrs.get("varied", ("system", "model", "gpu"))
    alike = [name for name in dict.fromkeys((x, *keys, *varied, "seed"))
             if name in table and name != key and not name.startswith(f"{key}.")]  # what one scheduler alone has
    base, others = table[words == value], table[words != value]
    if base.duplicated(alike).any():
        raise UsageError(f"plot: against={against!r}: several rows of it have the same {', '.join(alike)}")
    paired = others.merge(base[[*alike, y]], on=alike, suffixes=("", " of the base"))
    if paired.empty:
        raise UsageError(f"plot: against={against!r}: no other row has the same {', '.join(alike)}")
    paired[y] -= paired.pop(f"{y} of the base")
    paired.attrs = table.attrs
    return paired


_COMPARED = ("throughput_tok_s", "latency_s.mean", "latency_s.p99", "ttft_s.mean")


def with_differences(frame, fields, against):
    """A column `difference.FIELD` for each field that is compared: what a row has more than that of `against` with its seed and
    settings, 0 in that one."""
    key, _, value = against.partition("=")
    alike = [name for name in dict.fromkeys((*frame.attrs["varied"], "seed")) if name in frame and name != key]
    base = frame[frame[key].map(str) == value].drop_duplicates(alike)
    beside = frame[alike].merge(base[[*alike, *(name for name in _COMPARED if name in base)]], on=alike, how="left")
    for name in _COMPARED:
        if name in beside:
            frame[f"difference.{name}"] = frame[name] - beside[name].to_numpy()
    return with_units(frame, fields)


def plot(table, fields, x, y, by, ax, style, against=None):
    """See unmask.plot."""
    needed("pandas", "plot")
    keys = [by] if isinstance(by, str) else list(by or ())
    for column in (x, y, *keys):
        if column not in table:
            import difflib

            near = difflib.get_close_matches(str(column), map(str, table.columns), 1, 0.4)
            raise UsageError(f"plot: there is no column '{column}'{f'; did you mean {near[0]!r}' if near else ''}")
    whole = table[table[y].notna()]
    if len(whole) < len(table):
        warnings.warn(f"{len(table) - len(whole)} of {len(table)} rows have no {y} and are left out", stacklevel=3)
    if whole.empty:
        raise UsageError(f"plot: no row has a value of {y}")
    if _is_words(whole[y]):
        raise UsageError(f"plot: {y} are words, expected numbers")
    if against is not None:
        whole = _differences(whole, x, y, keys, against)
    _check_alike(whole.groupby([*keys, x], sort=False), [*keys, x], table.attrs.get("varied", ("system", "model", "gpu")))
    if ax is None:
        ax = needed("matplotlib.pyplot", "plot").subplots()[1]
    else:
        needed("matplotlib", "plot")
    series = [("", whole)] if not keys else [
        (", ".join(map(str, name if isinstance(name, tuple) else (name,))), rows) for name, rows in whole.groupby(keys, sort=False)]
    words = list(dict.fromkeys(whole[x])) if _is_words(whole[x]) else None
    for n, (name, rows) in enumerate(series):
        at = rows.groupby(x)[y]
        mean, count = at.mean(), at.count()
        half = [t_quantile(c - 1) * s / c**0.5 if c > 1 else 0 for c, s in zip(count, at.std(ddof=1))]
        spread = half if any(half) else None
        if words is None:
            ax.errorbar(mean.index, mean, yerr=spread, label=name or None, **{"marker": "o", "capsize": 3, **style})
        else:
            width = 0.8 / len(series)
            places = [words.index(word) + (n - (len(series) - 1) / 2) * width for word in mean.index]
            ax.bar(places, mean, width, yerr=spread, label=name or None, **{"capsize": 3, **style})
    if words is not None:
        ax.set_xticks(range(len(words)), words)
    ax.set_xlabel(fields.label(x))
    ax.set_ylabel(fields.label(y) if against is None else f"difference of {fields.label(y)} to {against.partition('=')[2]}")
    if against is not None:
        ax.axhline(0, color="0.5", linewidth=0.8)
    if keys:
        ax.legend(title=", ".join(keys))
    return ax
