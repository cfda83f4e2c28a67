"""Traces: files, and requests from the columns of a DataFrame."""

import datetime
import decimal
import fractions
import hashlib
import numbers
import os
import re
import shutil
import weakref

from unmask._errors import UsageError
from unmask._folder import Folder

_UNITS = {"s": 10**6, "ms": 10**3, "us": 1, "ns": fractions.Fraction(1, 1000)}
_EPOCH = datetime.datetime(1970, 1, 1)
_MOST_US = 2**62
_ISO = re.compile(r"\s*\d{4}-?\d{2}-?\d{2}([T ]\d{2}:?\d{2}(:?\d{2}([.,]\d{1,9})?)?\s*(Z|z|UTC|[+-]\d{2}(:?\d{2})?)?)?\s*$")


def _rounded(exact):
    """To the nearest whole number."""
    return (2 * exact.numerator + exact.denominator) // (2 * exact.denominator)


def microseconds_of(length):
    """A timedelta of Python, pandas or numpy in microseconds; None: it is not a time."""
    if hasattr(length, "to_timedelta64") or type(length).__name__ == "timedelta64":
        import numpy

        length = length.to_timedelta64() if hasattr(length, "to_timedelta64") else length
        if numpy.isnat(length) or numpy.datetime_data(length.dtype)[0] in ("Y", "M", "generic"):
            return None
        unit, step = numpy.datetime_data(length.dtype)
        ns = {"W": 604800 * 10**9, "D": 86400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6,
              "us": 10**3, "ns": 1}.get(unit)
        return None if ns is None else _rounded(fractions.Fraction(int(length.astype("int64")) * step * ns, 1000))
    if not isinstance(length, datetime.timedelta):
        return None
    return length // datetime.timedelta(microseconds=1)


def _moment_us(moment):
    """A moment of any kind in microseconds since 1970, and whether it says its zone; None: it is none."""
    if type(moment).__name__ == "datetime64":
        import numpy

        if numpy.isnat(moment):
            return None
        return microseconds_of(moment - numpy.datetime64(0, numpy.datetime_data(moment.dtype)[0])), False
    if hasattr(moment, "start_time"):  # a Period is when it begins
        moment = moment.start_time
    if isinstance(moment, datetime.date) and not isinstance(moment, datetime.datetime):
        moment = datetime.datetime(moment.year, moment.month, moment.day)
    if not isinstance(moment, datetime.datetime) or moment != moment:
        return None
    has_zone = moment.tzinfo is not None
    if has_zone:
        moment = moment.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    parts = moment.replace(microsecond=0, **({"nanosecond": 0} if hasattr(moment, "nanosecond") else {}))
    whole = datetime.datetime(parts.year, parts.month, parts.day, parts.hour, parts.minute, parts.second) - _EPOCH
    rest = moment.microsecond + (getattr(moment, "nanosecond", 0) >= 500)
    return (whole.days * 86400 + whole.seconds) * 10**6 + rest, has_zone


def _text_us(written):
    """A date as ISO 8601 writes it; None: it is none."""
    import pandas

    if not _ISO.match(written):
        return None
    try:
        return _moment_us(pandas.to_datetime(re.sub(r"\s*(UTC|z)\s*$", "Z", written.strip().replace(",", ".")),
                                             format="ISO8601"))
    except (ValueError, OverflowError):
        return None


def _number_us(number, unit):
    if isinstance(number, bool) or type(number).__name__ in ("bool_", "bool"):
        return None
    if isinstance(number, str):
        try:
            number = decimal.Decimal(number.strip())
        except decimal.InvalidOperation:
            return None
    if isinstance(number, numbers.Integral):
        number = int(number)
    elif not isinstance(number, (numbers.Real, decimal.Decimal)):
        return None
    try:
        exact = fractions.Fraction(number if isinstance(number, (int, decimal.Decimal)) else str(float(number)))
    except (ValueError, OverflowError):  # not a number, infinite
        return None
    return None if exact < 0 else _rounded(exact * _UNITS[unit])


def _is_length(value):
    return isinstance(value, datetime.timedelta) or type(value).__name__ in ("timedelta64", "Timedelta")


def _is_number(value):
    if isinstance(value, str):
        try:
            return decimal.Decimal(value.strip()) is not None
        except decimal.InvalidOperation:
            return False
    return isinstance(value, (numbers.Number, decimal.Decimal))


def _words(values):
    """A column's values as objects, whatever holds them."""
    return list(values.astype(object)) if hasattr(values, "astype") else list(values)


def _fast_us(column, unit):
    """The same for columns whose type says it all, without a look at each value; None: for no others."""
    import numpy
    import pandas

    kind = column.dtype
    if isinstance(kind, pandas.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    values = column.to_numpy() if not pandas.api.types.is_extension_array_dtype(column.dtype) else None
    if values is None or values.dtype.kind not in "iumM" or (values.dtype.kind in "mM" and numpy.isnat(values).any()):
        return None
    if values.dtype.kind in "mM":
        unit, is_moment = numpy.datetime_data(values.dtype)[0], values.dtype.kind == "M"
        values = values.astype("int64")
        values = values - values.min() if is_moment and len(values) else values
        if unit not in _UNITS:
            return None
    scale = _UNITS[unit]
    if len(values) and (int(values.max()) * scale > _MOST_US or int(values.min()) < 0):
        return None
    values = values.astype("int64")
    return values * scale if scale >= 1 else (values + 500) // 1000


def arrivals_us(column, name, unit):
    """The times of a column in microseconds: numbers in `unit`, timedeltas, or moments, of which the first is 0."""
    if unit not in _UNITS:
        raise UsageError(f"unit '{unit}' is none of {', '.join(_UNITS)}")
    fast = _fast_us(column, unit)
    if fast is not None:
        return fast
    values, found, zones = _words(column), [], set()
    first = values[0] if values else None
    if _is_length(first):
        def read(value):
            us = microseconds_of(value)
            return None if us == 0 and value < type(value)(0) else us  # before 0, by less than is written
    elif _is_number(first):
        def read(value):
            return _number_us(value, unit)
    else:
        def read(value):
            moment = _text_us(value) if isinstance(value, str) else _moment_us(value)
            if moment is not None:
                zones.add(moment[1])
            return moment[0] if moment is not None else None
    is_moment = not _is_length(first) and not _is_number(first)
    for place, value in enumerate(values):
        us = read(value)
        if us is None or (us < 0 and not is_moment) or abs(us) > _MOST_US or len(zones) > 1:
            why = "has a time zone where others have none, or none where others have one" if len(zones) > 1 else "not a time"
            raise UsageError(f"row {column.index[place]}: '{name}' is {value}, {why}")
        found.append(us)
    return [us - min(found) for us in found] if is_moment else found


def _tokens(column, name):
    import numpy
    import pandas

    values = pandas.to_numeric(column, errors="coerce")
    if values.dtype.kind == "b" or not pandas.api.types.is_numeric_dtype(values):
        values = values.astype("float64") * numpy.nan
    numbers_ = values.astype("float64").to_numpy(dtype="float64", na_value=numpy.nan)
    bad = ~(numpy.isfinite(numbers_) & (numbers_ >= 0) & (numbers_ == numbers_.round()) & (numbers_ < 2**53))
    if bad.any():
        raise UsageError(f"row {column.index[bad][0]}: '{name}' is {column[bad].iloc[0]}, not a number of tokens")
    return numbers_.astype("int64")


def _frame(df):
    """A DataFrame of pandas, from one of polars, too, or from anything that a DataFrame is made of."""
    import pandas

    if isinstance(df, pandas.DataFrame):
        return df
    if hasattr(df, "iter_rows") and hasattr(df, "columns"):
        return pandas.DataFrame({name: pandas.Series(df[name].to_list(), dtype=object if df[name].dtype.is_temporal() else None)
                                 for name in df.columns})
    if isinstance(df, (dict, list)):
        return pandas.DataFrame(df)
    raise UsageError(f"expected a DataFrame, got a {type(df).__name__}")


class Trace:
    """A trace: a file that any command reads, or one made from a DataFrame, which is named by its content: the same
    requests are the same trace to a database that is resumed. It can be pickled, and lives in every process that has it."""

    def __init__(self, path):
        self._path, self._content, self._folder = os.fspath(path), None, None

    def __getstate__(self):
        return self._path, self._content

    def __setstate__(self, state):
        self._path, self._content, self._folder = *state, None

    @classmethod
    def from_df(cls, df, time="arrival_s", input="input_tokens", output="output_tokens", unit="s", tenant=None,
                prefix=None, answer=None, session=None, think=None):
        """Requests from the columns of a DataFrame. `time` may be None (lengths alone), numbers in `unit` (s, ms, us,
        ns), timedeltas, or moments: datetimes of any unit and zone, Periods, texts of ISO 8601. `tenant` (numbers or
        names), `prefix` and `answer` name columns that are optional, and so do `session` (of which conversation a row is
        a turn) and `think` (in `unit`, from the end of the turn before; missing: not said). Files have options of their
        own, which every command takes: `run(workload="x.jsonl", time_unit="s", hash_tokens=64, where="status=ok",
        skip_failed=True)`."""
        import pandas

        df = _frame(df)
        wanted = [("input_tokens", input), ("output_tokens", output), ("tenant", tenant), ("prefix_tokens", prefix),
                  ("answer_tokens", answer)]
        missing = [name for name in [time, session, think, *(name for _, name in wanted)]
                   if name is not None and name not in df]
        if missing:
            raise UsageError(f"the DataFrame has no column '{missing[0]}'; it has {', '.join(map(str, df.columns))}")
        table = pandas.DataFrame(index=range(len(df)))
        if time is not None:
            table["arrival_us"] = arrivals_us(df[time], time, unit)
        for name, column in wanted:
            if column is not None and name == "tenant" and not pandas.api.types.is_numeric_dtype(df[column]):
                if df[column].isna().any():
                    raise UsageError(f"row {df.index[df[column].isna()][0]}: '{column}' is missing, not a tenant")
                table[name] = df[column].astype(str).to_numpy()
            elif column is not None:
                table[name] = _tokens(df[column], column)
        if session is not None:
            table["session"] = df[session].where(df[session].notna(), "").astype(str).to_numpy()
        if think is not None:
            known = df[think].notna()
            table["think_us"] = ""
            table["think_us"] = table["think_us"].astype(object)
            table.loc[known.to_numpy(), "think_us"] = [str(us) for us in arrivals_us(df[think][known], think, unit)]
        if time is not None:
            table = table.sort_values("arrival_us", kind="stable")
        trace = cls("")
        trace._path, trace._content = None, table.to_csv(index=False).encode()
        return trace

    @property
    def path(self):
        """A file with the requests. That of a trace which was made is there while the trace is."""
        if self._content is None:
            return self._path
        if self._folder is None or self._folder.owner != os.getpid():
            self._folder = Folder()
            self._folder.write(self._name(), self._content)
            weakref.finalize(self, self._folder.close)
        return os.path.join(self._folder.path, self._name())

    def _name(self):
        return f"trace-{hashlib.sha256(self._content).hexdigest()[:16]}.csv"

    def save(self, path):
        """Writes the trace to a file of your own, in a format that every command reads."""
        shutil.copyfile(self.path, path)

    def info(self, **options):
        """Rates, lengths and burstiness: `unmask trace info`."""
        from unmask import call

        return call("trace info", self.path, **options)

    def __repr__(self):
        return f"Trace({self._path!r})" if self._content is None else f"<Trace {self._name()}>"
