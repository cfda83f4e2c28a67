"""unmask in Python: what happens when a diffusion language model serves this traffic?

    import unmask
    unmask.run(gpu="l40s", system="dllm-serve", workload="burst", rate=0.3)["latency_s"]["p99"]
    unmask.sweep(systems=["dllm-serve", "fast-dllm"], rates=[0.1, 0.2, 0.3], gpus="l40s")

Options are those of the command line, with _ for -; what a command cannot do is an `Error` with the
program's own sentence. Policies may be written in Python (`Scheduler`, `Decoder`).
"""

import hashlib
import json
import numbers
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import warnings
import weakref

from unmask._policy import Decoder, Policies, PolicyError, Scheduler

__all__ = ["run", "compare", "capacity", "bound", "explain", "call", "sweep", "read", "listing", "Trace", "Scheduler",
           "Decoder", "Error", "UsageError", "PolicyError", "program"]
_HERE = pathlib.Path(__file__).resolve().parent


class Error(Exception):
    """Something in the world is not as it must be: a file, a device, memory (`status` 1)."""

    status = 1


class UsageError(Error, ValueError):
    """The request makes no sense (`status` 2)."""

    status = 2


def program():
    """The path of the program: UNMASK_PROGRAM, else the one that was installed with this module."""
    return os.environ.get("UNMASK_PROGRAM") or str(_HERE / "bin" / "unmask")


def _text(value, policies):
    if isinstance(value, (Scheduler, Decoder)):
        return policies.path_of(value)
    if isinstance(value, Trace):
        return value.path
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, numbers.Number):
        return repr(value.item() if hasattr(value, "item") else value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _is_list(value):
    return isinstance(value, (list, tuple, range, set)) or type(value).__module__ in ("numpy", "pandas")


def _listed(value):
    return list(value) if _is_list(value) and not isinstance(value, (str, bytes)) else [value]


def _arguments(options, policies):
    """The words of the command line for keyword arguments."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        flag = ("-" if len(name) == 1 else "--") + name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(flag)
        elif isinstance(value, dict):
            for key, inner in value.items():
                words += [flag, f"{key}={_text(inner, policies)}"]
        elif name == "slo" and _is_list(value):
            for inner in value:
                words += [flag, _text(inner, policies)]
        else:
            words += [flag, ",".join(_text(inner, policies) for inner in _listed(value))]
    return words


def _ask(words, policies):
    try:
        child, (out, said) = policies.run([program(), *words], lambda child: child.communicate())
    except OSError as trouble:
        raise Error(f"{program()} cannot be run: {trouble.strerror}") from None
    said = said.decode("utf-8", "replace").strip()
    if child.returncode != 0:
        sentences = [line[len("unmask: "):] for line in said.splitlines() if line.startswith("unmask: ")]
        sentence = sentences[-1] if sentences else said or f"unmask ended with status {child.returncode}"
        raise (UsageError if child.returncode == 2 else Error)(sentence)
    return out


def call(command, *words, **options):
    """The JSON of any command that has some: `call("plan lmax", system="mosaic", gpu="rtx3090")`."""
    with Policies() as policies:
        return json.loads(_ask([*command.split(), *map(str, words), *_arguments(options, policies), "--json"], policies))


def run(**options):
    """One run as a dict: `unmask run`. `set={"cache.retention": 0.3}` sets keys."""
    return call("run", **options)


def compare(**options):
    """Several systems under the same workload: a list of dicts."""
    return call("compare", **options)


def capacity(**options):
    """The highest rate at which objectives are met: `capacity(slo="p99 latency<30s", ...)`."""
    return call("capacity", **options)


def bound(**options):
    """What no scheduler could beat."""
    return call("bound", **options)


def explain(**options):
    """One step by operator."""
    return call("explain", **options)


def listing(what):
    """What can be named: `listing("systems")`, a DataFrame."""
    import pandas

    return pandas.DataFrame(call("list", what)[what]["rows"])


_AXES = ("systems", "models", "gpus", "workloads", "rates", "input_tokens", "output_tokens", "requests", "seeds")


def _sweep_file(axes, settings, policies):
    lines = ["[sweep]"]
    for name in _AXES:
        values = axes.get(name)
        if name == "seeds" and isinstance(values, int):
            values = range(1, values + 1)
        if values is not None:
            lines.append(f"{name} = {', '.join(_text(value, policies) for value in _listed(values))}")
    for key, values in (settings or {}).items():
        lines.append(f"set.{key} = {', '.join(_text(value, policies) for value in _listed(values))}")
    return "\n".join(lines) + "\n"


def _number(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        try:
            return float(text)
        except (TypeError, ValueError):
            return text


def _flat(summaries):
    import pandas

    return pandas.json_normalize(summaries)


def sweep(set=None, **options):
    """Every combination of lists, a row each: a DataFrame whose columns are the lists' names and the fields of
    `run` ("latency_s.p99"). Lists: systems, models, gpus, workloads, rates, input_tokens, output_tokens, requests,
    seeds (or how many), and `set={"cache.retention": [0.3, 0.5]}`; other options are those of `unmask sweep`, such as
    `db="results.db"`, which is resumed."""
    axes = {}
    for name in list(options):
        plural = name if name in _AXES else name + "s"
        if plural in _AXES:
            axes[plural] = options.pop(name)
    with Policies() as policies, tempfile.TemporaryDirectory(prefix="unmask-") as folder:
        path = os.path.join(folder, "sweep.ini")
        pathlib.Path(path).write_text(_sweep_file(axes, set, policies), encoding="utf-8")
        points = json.loads(_ask(["sweep", path, *_arguments(options, policies), "--json"], policies))
    rows = []
    for point in points:
        if not point.get("summary"):
            raise Error(f"a point has no result: {point}")
        row = {key: _number(value) for key, value in point["point"].items()}
        rows.append({**row, **{key: value for key, value in point["summary"].items() if key not in row}})
    return _flat(rows)


def _setup(config, identity):
    """The digest of what a run was made of but its seed: configuration, contents of files, build."""
    section, lines = "", []
    for line in (config or "").splitlines():
        section = line if line.startswith("[") else section
        if not (section == "[run]" and line.startswith("seed = ")):
            lines.append(line)
    inputs = [(file.get("role"), file.get("sha256")) for file in (identity or {}).get("inputs", [])]
    build = (identity or {}).get("build", {})
    made_of = [lines, inputs, build.get("version"), build.get("sources")]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]


def _once(summaries):
    """Places of the runs that count, one for each identity: a whole run before one that was cut short, of those the
    longest. What was measured on a device again is another run."""
    best = {}
    for place, summary in enumerate(summaries):
        digest, cut = (summary.get("identity") or {}).get("digest"), summary.get("incomplete") is not None
        key = digest if digest and (cut or summary.get("device") is None) else place
        rank = (not cut, summary.get("completed") or 0)
        if key not in best or rank > best[key][0]:
            best[key] = (rank, place)
    return sorted(place for _, place in best.values())


def read(db, table="runs"):
    """A database that --db recorded, as a DataFrame: its runs with all fields of their summaries, or another table
    (requests, steps, events, decisions), codes as words. A run that is on record more than once counts once. Runs of
    one `setup` differ in the seed alone: means over seeds are `read(db).groupby("setup")`'s."""
    import pandas

    if not os.path.exists(db):
        raise Error(f"cannot open '{db}': no such file")
    try:
        file = sqlite3.connect(f"{pathlib.Path(db).resolve().as_uri()}?mode=ro", uri=True)
        try:
            known = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
            if table not in known:
                raise UsageError(f"{db} has no table '{table}'; it has {', '.join(sorted(known)) or 'none'}")
            rows = pandas.read_sql_query(f'SELECT * FROM "{table}"', file)
            names = {(kind, value): name for kind, value, name in file.execute("SELECT kind, value, name FROM names")}
        finally:
            file.close()
    except (sqlite3.DatabaseError, pandas.errors.DatabaseError) as trouble:
        raise Error(f"{db} cannot be read as a database: {trouble}") from None
    if table == "runs":
        whole = rows[rows["summary"].notna()]
        summaries = [json.loads(text) for text in whole["summary"]]
        setups = [_setup(config, s.get("identity")) for config, s in zip(whole["config"], summaries)]
        places = _once(summaries)
        if len(places) < len(summaries):
            warnings.warn(f"{len(summaries) - len(places)} runs of {db} are on record more than once and count once")
        frame = _flat([summaries[i] for i in places])
        frame = frame.assign(run=whole["run"].to_numpy()[places], setup=[setups[i] for i in places])
        return frame.set_index("run")
    for column, kind in (("state", "state"), ("reason", "reason"), ("kind", "event")):
        if column in rows and any(key[0] == kind for key in names):
            rows[column] = [names.get((kind, value), value) for value in rows[column]]
    return rows


class Trace:
    """A trace: a file that any command reads, or one made from a DataFrame."""

    def __init__(self, path):
        self.path = os.fspath(path)

    @classmethod
    def from_df(cls, df, time="arrival_s", input="input_tokens", output="output_tokens", unit="s", tenant=None,
                prefix=None, answer=None, session=None, think=None):
        """Requests from the columns of a DataFrame. `time` may be None (lengths alone), numbers in `unit` (s, ms, us,
        ns), time stamps or texts of dates; `tenant` (numbers or names), `prefix` and `answer` name columns that are
        optional, and so do `session` (of which conversation a row is a turn) and `think` (in `unit`, from the end of
        the turn before; missing: not said). Files have options of their own, which every command takes:
        `run(workload="x.jsonl", time_unit="s", hash_tokens=64, where="status=ok", skip_failed=True)`."""
        import pandas

        wanted = [("input_tokens", input), ("output_tokens", output), ("tenant", tenant), ("prefix_tokens", prefix),
                  ("answer_tokens", answer)]
        missing = [name for name in [time, session, think, *(name for _, name in wanted)]
                   if name is not None and name not in df]
        if missing:
            raise UsageError(f"the DataFrame has no column '{missing[0]}'; it has {', '.join(map(str, df.columns))}")
        table = pandas.DataFrame()
        if time is not None:
            table["arrival_us"] = cls._microseconds(df[time], time, unit)
        for name, column in wanted:
            if column is not None and name == "tenant" and not pandas.api.types.is_numeric_dtype(df[column]):
                table[name] = df[column].astype(str).to_numpy()
            elif column is not None:
                values = pandas.to_numeric(df[column], errors="coerce")
                bad = values.isna() | (values < 0) | (values != values.round())
                if bad.any():
                    raise UsageError(f"row {df.index[bad][0]}: '{column}' is {df[column][bad].iloc[0]}, not a number "
                                     "of tokens")
                table[name] = values.astype("int64").to_numpy()
        if session is not None:
            table["session"] = df[session].where(df[session].notna(), "").astype(str).to_numpy()
        if think is not None:
            known = df[think].notna()
            table["think_us"] = ""
            table.loc[known.to_numpy(), "think_us"] = cls._microseconds(df[think][known], think, unit).astype(str)
        if time is not None:
            table = table.sort_values("arrival_us", kind="stable")
        folder = tempfile.mkdtemp(prefix="unmask-")
        trace = cls(os.path.join(folder, "trace.csv"))
        weakref.finalize(trace, shutil.rmtree, folder, ignore_errors=True)
        table.to_csv(trace.path, index=False)
        return trace

    @staticmethod
    def _microseconds(times, name, unit):
        import pandas

        if unit not in ("s", "ms", "us", "ns"):
            raise UsageError(f"unit '{unit}' is none of s, ms, us, ns")
        is_text = not (pandas.api.types.is_numeric_dtype(times) or pandas.api.types.is_datetime64_any_dtype(times))
        if is_text and times.map(lambda time: isinstance(time, str)).all():
            numbers = pandas.to_numeric(times, errors="coerce")
            times = pandas.to_datetime(times, utc=True, errors="coerce", format="mixed") if numbers.isna().any() else numbers
        if pandas.api.types.is_datetime64_any_dtype(times):
            seconds = (times - times.min()).dt.total_seconds()
        else:
            seconds = pandas.to_numeric(times, errors="coerce") * {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
        if seconds.isna().any() or (seconds < 0).any():
            bad = seconds.isna() | (seconds < 0)
            raise UsageError(f"row {times.index[bad][0]}: '{name}' is {times[bad].iloc[0]}, not a time")
        return (seconds * 1e6).round().astype("int64").to_numpy()

    def info(self, **options):
        """Rates, lengths and burstiness: `unmask trace info`."""
        return call("trace info", self.path, **options)

    def __repr__(self):
        return f"Trace({self.path!r})"
