"""unmask in Python: what happens when a diffusion language model serves this traffic?

    import unmask
    unmask.run(gpu="l40s", system="dllm-serve", workload="burst", rate=0.3)["latency_s"]["p99"]
    table = unmask.sweep(systems=["dllm-serve", "fast-dllm"], rates=[0.1, 0.2, 0.3], gpus="l40s")
    unmask.plot(table, x="rate", y="latency_s.p99", by="system")

Options are those of the command line, with _ for -; what a command cannot do is an `Error` with the
program's own sentence. Tables are DataFrames of pandas, whose `attrs["units"]` has the columns' units. Policies may be written in Python (`Scheduler`, `Cache`, `Decoder`, `Router`).
"""

import hashlib
import json
import os
import pathlib
import re
import sqlite3
import subprocess

from unmask import _results, _tables, _values
from unmask._errors import Error, PolicyError, UsageError
from unmask._policy import PROGRAM, Cache, Decoder, Policies, Router, Scheduler
from unmask._process import warn
from unmask._signatures import options_of
from unmask._trace import Trace
from unmask._view import Phase

__all__ = ["run", "compare", "capacity", "bound", "explain", "call", "sweep", "read", "plot", "figure", "report", "cite",
           "listing",
           "Trace", "Scheduler",
           "Cache", "Decoder", "Router", "Phase", "Error", "UsageError", "PolicyError", "program"]


def __getattr__(name):
    if name != "__version__":
        raise AttributeError(f"module 'unmask' has no attribute '{name}'")
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[1]


def program():
    """The path of the program: UNMASK_PROGRAM, else the one that was installed with this module, or built in this clone."""
    named = os.environ.get("UNMASK_PROGRAM")
    if not named and not PROGRAM.exists():
        raise Error(f"there is no program beside this module ({PROGRAM}); in a clone `make` builds it")
    return named or str(PROGRAM)


def _ask(words, policies, options, is_enough=lambda out: False):
    """The output of a command; what it cannot do is raised with its own sentence, or a warning where `is_enough(output)`."""
    if options.get("db") is not None:
        policies.warn()
    status, out, sentence = policies.run([program(), *words], words[0])
    if status != 0:
        sentence = policies.named(sentence or f"unmask ended with status {status}")
        if status == 1 and is_enough(out):
            warn(sentence)
            return out
        raise (UsageError if status == 2 else Error)(sentence)
    return out


def call(command, *words, **options):
    """The JSON of any command that has some: `call("plan lmax", system="mosaic", gpu="rtx3090")`."""
    return _call(command, words, options)


def _call(command, words, options, has_result=lambda found: False):
    """What `has_result` is returned whatever else is amiss, which is a warning."""
    def is_enough(out):
        try:
            return has_result(json.loads(out))
        except (ValueError, TypeError, KeyError):
            return False

    with Policies() as policies:
        said = [_values.text(word, command, policies) for word in words]
        asked = [*command.split(), *said, *_values.arguments(options, policies), "--json"]
        out = _ask(asked, policies, options, is_enough)
    try:
        return _results.of(json.loads(out))
    except ValueError:
        raise UsageError(f"unmask {command} has no JSON to be returned") from None


@options_of("run")
def run(**options):
    """One run as a dict: `unmask run`. `set={"cache.retention": 0.3}` sets keys."""
    return call("run", **options)


def _fields():
    """What the program says of the fields of a run."""
    def listed():
        with Policies() as policies:
            return json.loads(_ask(["list", "fields", "--json"], policies, {}))["fields"]["rows"]

    return _tables.Fields(program(), listed)


@options_of("compare")
def compare(**options):
    """Several systems under the same workload: a DataFrame, a row each, whose columns are the fields of `run`, ratios to the
    first system and, with several seeds, means with 95 % intervals (`spread`) and paired differences. One that does not fit has
    its reason in the column `no_result`."""
    _tables.needed("pandas", "compare")
    rows = _call("compare", (), options, lambda found: any(_has_run(row) for row in found))
    over = [row["over"] for row in rows if row.get("over")]
    shown = _shown([one["value"] for one in over])
    rows = [{**row, row["over"]["key"]: _number(shown[row["over"]["value"]])} if row.get("over") and row["over"]["key"] not in row else row
            for row in rows]
    return _tables.frame_of(rows, _fields(), "compare")


def _has_run(row):
    """Whether a row of `compare` has a result."""
    return "no_result" not in row and any("no_result" not in run for run in row.get("runs", [row]))


@options_of("capacity")
def capacity(**options):
    """The highest rate at which objectives are met, `capacity(slo="p99 latency<30s", ...)`: a DataFrame, a row for each
    configuration; `attrs` has the workload and the objectives. `at_capacity.` are means over seeds at that rate, of each objective
    and of the share of requests within all. With `rate=50` and `price={"l40s": 0.9}` it is the fewest replicas for that rate, and
    their cost. One that does not fit has its reason in `no_result`."""
    _tables.needed("pandas", "capacity")
    found = _call("capacity", (), options,
                  lambda found: any(not one.get("no_result") for row in found["configurations"] for one in row["by_seed"]))
    rows = []
    for row in found.pop("configurations"):
        row = {key: _policy_name(value) for key, value in row.items()}
        reasons = [one["no_result"] for one in row["by_seed"] if one.get("no_result")]
        rows.append({**row, **_at_capacity(row["by_seed"]),
                     **({"no_result": reasons[0]} if len(reasons) == len(row["by_seed"]) > 0 else {})})
    return _tables.frame_of(rows, _fields(), "capacity", **found)


def _at_capacity(seeds):
    """What a configuration reaches at its capacity, or with its fleet, in the mean over seeds; nothing where one has none."""
    met = [seed["at_capacity"] for seed in seeds if seed.get("at_capacity")]
    if not met or len(met) < len(seeds):
        return {}
    values = {f"{name}_s": [one["values"][name] for one in met] for name in met[0]["values"] if not name.endswith("goodput")}
    values["attainment"] = [one["attainment"] for one in met]
    found = {f"at_capacity.{name}": sum(of) / len(of) for name, of in values.items() if None not in of}
    return {**found, **({"requests": max(seed["requests"] for seed in seeds)} if "requests" in seeds[0] else {})}


@options_of("bound")
def bound(**options):
    """What no scheduler could beat."""
    return call("bound", **options)


@options_of("explain")
def explain(**options):
    """One step by operator."""
    return call("explain", **options)


_LISTED = {"memory": "bytes", "weights": "bytes", "KV/token": "bytes", "positions": "tokens", "block": "tokens",
           "TFLOP/s": "TFLOP/s", "fp8 TFLOP/s": "TFLOP/s", "GB/s": "GB/s"}


def listing(what):
    """What can be named: `listing("systems")`, a DataFrame."""
    frame = _tables.needed("pandas", "listing").DataFrame(call("list", what)[what]["rows"])
    frame.attrs["units"] = {column: _LISTED[column] for column in frame if column in _LISTED}
    return frame


_AXES = {"systems": "configurations of policies", "models": "models", "gpus": "GPUs", "workloads": "workloads, files or Traces",
         "rates": "mean requests per second", "input_tokens": "lengths that every prompt has",
         "output_tokens": "lengths that every output has", "requests": "how many requests",
         "seeds": "of all random streams; a number: seeds 1 to it"}


# Keys that commands take as options; in a sweep each is a list like those of `set`.
_KEYS = {**{key: key for key in ("scheduler", "cache", "decoder", "router", "planner", "runtime", "host", "replicas")},
         "arrivals": "workload.arrivals"}


def _keys(options, settings):
    """`set` with what options say of the same keys, which are taken out. One host is an option of `unmask sweep`."""
    found = dict(settings or {})
    for name, key in _KEYS.items():
        value = options.get(name)
        if value is None or name == "host" and not _values.is_many(value) and "," not in str(value):
            continue
        if key in found:
            raise UsageError(f"{name}= and set={{'{key}': ...}} are one list: give one of them")
        found[key] = options.pop(name)
    return found


def _axes(options, settings):
    """The lists of a sweep, taken out of its options, by the keys of its file."""
    axes = {}
    settings = _keys(options, settings)
    for name in list(options):
        key = name if name in _AXES else name + "s"
        if key not in _AXES or options[name] is None:
            continue
        if key in axes:
            raise UsageError(f"{key[:-1]}= and {key}= are one list: give one of them")
        values = options.pop(name)
        if name == "seeds" and not _values.is_many(values) and "," not in str(values):
            values = _values.text(values, name, None)
            if not values.isdigit() or not 1 <= int(values) <= 100000:
                raise UsageError(f"seeds: '{values}' is not how many seeds; seed= is one, a list is which")
            values = range(1, int(values) + 1)
        axes[key] = values
    axes = {key: axes[key] for key in _AXES if key in axes}
    axes.update({f"set.{key}": values for key, values in settings.items()})
    return axes


def _number(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        try:
            return float(text)
        except (TypeError, ValueError):
            return text


_LISTS = [(name, meaning) for key, of in _AXES.items()
          for name, meaning in [(key, of), *([(key[:-1], f"short for {key} of one value")] if key not in (
              "input_tokens", "output_tokens", "requests") else [])]]
_LISTS += [(name, f"one or several, as set={{'{key}': ...}}") for name, key in _KEYS.items()]


def _has_results(out):
    """Whether some points of a sweep have a result, of which its JSON tells all."""
    try:
        return any("summary" in point for point in json.loads(out))
    except (ValueError, TypeError):
        return False


@options_of("sweep", _LISTS, without=("seeds", "host"))
def sweep(set=None, **options):
    """Every combination of lists, a row each: a DataFrame whose columns are the lists' names and the fields of
    `run` ("latency_s.p99"). Lists: systems, models, gpus, workloads, rates, input_tokens, output_tokens, requests,
    seeds (or how many; `seed` is that one, as for `run`), scheduler, cache and the other policies, and
    `set={"cache.retention": [0.3, 0.5]}` for every other key; whatever can be iterated over is a list. Other options are those of `unmask sweep`, such as `db="results.db"`, which is resumed. A point
    that does not fit, or fails, has its reason in the column `no_result` and nothing else; where all fail the call does. With
    `against="scheduler=knee"` the columns `difference.` have what a row has more than that of `knee` with the same seed."""
    _tables.needed("pandas", "sweep")
    axes = _axes(options, set)
    with Policies() as policies:
        path = policies.write("sweep", ".ini", _values.sweep_file(axes, policies))
        points = json.loads(_ask(["sweep", path, *_values.arguments(options, policies), "--json"], policies, options, _has_results))
        against = policies.against(options["against"]) if isinstance(options.get("against"), str) else None
    rows, varied = [], list(dict.fromkeys(key for point in points for key in point["point"]))
    shown = {key: _shown([point["point"][key] for point in points if key in point["point"]]) for key in varied}
    for point in points:
        row = {key: _number(shown[key][value]) for key, value in point["point"].items()}
        found = point.get("summary") or {"no_result": point.get("no_result")}
        rows.append({**row, **{key: value for key, value in found.items() if key not in row}})
    table = _tables.frame_of(rows, _fields(), "sweep", varied=varied)
    if against is None:
        return table
    key, _, value = (word.strip() for word in against.partition("="))
    return _tables.with_differences(table, _fields(), f"{key}={shown.get(key, {}).get(value, value)}")


_OF_PYTHON = re.compile(r"(?:.* \()?/.*/unmask-policies-\d+/([^/]*)\.so\)?")


def _policy_name(value):
    """A policy in Python is known by its name and digest, not by its file among the temporary ones."""
    found = _OF_PYTHON.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else value


def _shown(values):
    """What tables show for each: a policy in Python by its name alone, where no other value has it."""
    of = {value: _policy_name(value) for value in values}
    names = {value: re.sub(r"-[0-9a-f]{16}(-\d+)?$", "", name) if name != value else name for value, name in of.items()}
    return {value: name if list(names.values()).count(name) == 1 else of[value] for value, name in names.items()}


def _varied(configs):
    """Settings in which runs differ, a dict a run, by the names that a sweep has for them."""
    settings = []
    for config in configs:
        section, found = "", {}
        for line in (config or "").splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif " = " in line:
                key, _, value = line.partition(" = ")
                found[key if section in ("run", "system") else f"{section}.{key}"] = value
        settings.append(found)
    names = dict.fromkeys(name for found in settings for name in found)
    wanted = {name: _shown(list(dict.fromkeys(found.get(name) for found in settings))) for name in names
              if len({repr(_number(found.get(name))) for found in settings}) > 1}
    return [{name: _number(shown[found.get(name)]) for name, shown in wanted.items()} for found in settings]


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


def _once(summaries, setups):
    """Places of the runs that count, one for each identity: a whole run before one that was cut short, of those the
    longest. What was measured on a device again is another run; one with another seed is none where seeds draw nothing."""
    best = {}
    whole = {(summary.get("identity") or {}).get("digest") for summary in summaries if summary.get("incomplete") is None}
    for place, summary in enumerate(summaries):
        digest, cut = (summary.get("identity") or {}).get("digest"), summary.get("incomplete") is not None
        if cut and digest and digest in whole:
            continue
        key = digest if digest and (cut or summary.get("device") is None) else place
        if key == digest and not cut and summary.get("is_drawn") is False:
            key = setups[place]
        rank = (not cut, summary.get("completed") or 0)
        if key not in best or rank > best[key][0]:
            best[key] = (rank, place)
    return sorted(place for _, place in best.values())


def read(db, table="runs"):
    """A database that --db recorded, as a DataFrame: its runs with all fields of their summaries, or another table
    (requests, steps, events, decisions), codes as words. A run that is on record more than once counts once, and so
    do seeds that draw nothing (`is_drawn`). Runs of one `setup` differ in the seed alone: means over seeds are `read(db).groupby("setup")`'s."""
    pandas = _tables.needed("pandas", "read")
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
        places = _once(summaries, setups)
        if len(places) < len(summaries):
            warn(f"{len(summaries) - len(places)} runs of {db} are on record more than once, or differ in a seed that "
                 "draws nothing, and count once")
        varied = _varied(whole["config"])
        rows = [{**{key: value for key, value in varied[i].items() if key not in summaries[i]}, **summaries[i]}
                for i in places]
        frame = _tables.frame_of(rows, _fields(), "read", varied=list(varied[0]) if varied else [])
        frame = frame.assign(run=whole["run"].to_numpy()[places], setup=[setups[i] for i in places])
        return frame.set_index("run")
    for column, kind in (("state", "state"), ("reason", "reason"), ("kind", "event")):
        if column in rows and any(key[0] == kind for key in names):
            rows[column] = [names.get((kind, value), value) for value in rows[column]]
    return _tables.with_units(rows, _fields())


def plot(table, x, y, by=None, ax=None, against=None, **style):
    """Draws one column of a table over another: means, with 95 % intervals over seeds, on axes of matplotlib, which it returns.

    table: a DataFrame, of `sweep`, `read`, `compare` or `capacity`, or the path of a database
    x, y: columns, such as "rate" and "latency_s.p99"; words along x make bars
    by: a column, or several: a line for each of their values
    ax: axes to draw on (default: new ones)
    against: "scheduler=look-ahead": differences to the rows of it, paired by seed; an interval that holds 0 tells nothing apart
    style: what matplotlib's errorbar (of words: bar) takes, such as `marker="s"`

    Rows that differ in more than the seed are never averaged. `unmask.call("plot", db, ...)` has distributions and the course
    of time."""
    if isinstance(table, (str, bytes, os.PathLike)):
        table = read(os.fsdecode(table))
    if not hasattr(table, "groupby"):
        raise UsageError(f"plot: a {type(table).__name__} is no table; a DataFrame or the path of a database is")
    return _tables.plot(table, _fields(), x, y, by, ax, style, against)


@options_of("figure", without=("all", "scores"))
def figure(name, out=None, **options):
    """The figure of a study: `figure("dllm-serve-table4")`, of a paper, or of an INI file of one's own. `table` has its values,
    `paper` the paper's numbers beside them; a notebook shows the drawing. What is drawn is kept in the folder `out` as well."""
    from unmask._figure import figures_of

    def draw(folder):
        with Policies() as policies:
            words = ["figure", _values.text(name, "figure", policies), *_values.arguments({**options, "out": folder}, policies)]
            return _ask(words, policies, options).decode()

    found = figures_of(draw, out)
    if not found:
        raise Error(f"figure {name} wrote no table")
    return found[0]


def report(db, out="report.html"):
    """Writes one page that compares all runs of a database, and returns its path."""
    with Policies() as policies:
        _ask(["report", _values.text(db, "report", policies), "--out", _values.text(out, "out", policies)], policies, {})
    return pathlib.Path(out)


def cite(db, run=None):
    """A text that says how the runs of a database were made, or one of them: versions, prices and their errors, cautions."""
    with Policies() as policies:
        words = ["cite", _values.text(db, "cite", policies), *_values.arguments({"run": run}, policies)]
        return _ask(words, policies, {}).decode()
