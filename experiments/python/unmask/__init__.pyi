"""Made by `make reference` from the program's tables: see experiments/python/stubs.py."""

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


def run(*, system: Optional[str] = None, model: Optional[_Path] = None, gpu: Optional[_Path] = None,
    systems_file: Optional[_Path] = None, profile: Optional[_Path] = None, roofline: bool = False,
    price_source: Optional[str] = None, set: Optional[Mapping[str, Any]] = None,
    scheduler: Optional[Union[str, Scheduler]] = None, cache: Optional[Union[str, Cache]] = None,
    decoder: Optional[Union[str, Decoder]] = None, router: Optional[Union[str, Router]] = None,
    planner: Optional[str] = None, runtime: Optional[_Path] = None, host: Optional[_Path] = None,
    replicas: Optional[int] = None, backend: Optional[str] = None, weights: Optional[_Path] = None,
    eos: Optional[str] = None, library: Optional[_Path] = None, device: Optional[int] = None,
    clock: Optional[str] = None, tokenizer: Optional[_Path] = None, chat: Optional[str] = None,
    reference: Optional[_Path] = None, workload: Optional[Union[_Path, Trace]] = None, arrivals: Optional[str] = None,
    rate: Optional[float] = None, requests: Optional[int] = None, seed: Optional[int] = None,
    input_tokens: Optional[int] = None, output_tokens: Optional[int] = None,
    columns: Optional[Union[_Words, Mapping[str, Any]]] = None, time_unit: Optional[str] = None,
    hash_tokens: Optional[int] = None, where: Optional[Union[_Words, Mapping[str, Any]]] = None,
    skip_failed: bool = False, skip_bad: bool = False, slo_latency: Optional[_Time] = None,
    slo_ttft: Optional[_Time] = None, slo_tpot: Optional[_Time] = None, db: Optional[_Path] = None,
    levels: Optional[str] = None, decode: Optional[_Path] = None, decode_out: Optional[_Path] = None,
    outputs: Optional[_Path] = None, timeline: Optional[_Path] = None, bound: bool = False) -> Run: ...
def compare(*, systems: Optional[_Words] = None, system: Optional[str] = None,
    over: Optional[Mapping[str, Any]] = None, against: Optional[Mapping[str, Any]] = None, seeds: Optional[int] = None,
    same_requests: bool = False, bound: bool = False, model: Optional[_Path] = None, gpu: Optional[_Path] = None,
    systems_file: Optional[_Path] = None, profile: Optional[_Path] = None, roofline: bool = False,
    price_source: Optional[str] = None, set: Optional[Mapping[str, Any]] = None,
    scheduler: Optional[Union[str, Scheduler]] = None, cache: Optional[Union[str, Cache]] = None,
    decoder: Optional[Union[str, Decoder]] = None, router: Optional[Union[str, Router]] = None,
    planner: Optional[str] = None, runtime: Optional[_Path] = None, host: Optional[_Path] = None,
    replicas: Optional[int] = None, backend: Optional[str] = None, weights: Optional[_Path] = None,
    eos: Optional[str] = None, library: Optional[_Path] = None, device: Optional[int] = None,
    clock: Optional[str] = None, tokenizer: Optional[_Path] = None, chat: Optional[str] = None,
    reference: Optional[_Path] = None, workload: Optional[Union[_Path, Trace]] = None, arrivals: Optional[str] = None,
    rate: Optional[float] = None, requests: Optional[int] = None, seed: Optional[int] = None,
    input_tokens: Optional[int] = None, output_tokens: Optional[int] = None,
    columns: Optional[Union[_Words, Mapping[str, Any]]] = None, time_unit: Optional[str] = None,
    hash_tokens: Optional[int] = None, where: Optional[Union[_Words, Mapping[str, Any]]] = None,
    skip_failed: bool = False, skip_bad: bool = False, slo_latency: Optional[_Time] = None,
    slo_ttft: Optional[_Time] = None, slo_tpot: Optional[_Time] = None, db: Optional[_Path] = None,
    levels: Optional[str] = None, j: Optional[int] = None) -> DataFrame: ...
def capacity(*, slo: Optional[_Words] = None, systems: Optional[_Words] = None, system: Optional[str] = None,
    over: Optional[Mapping[str, Any]] = None, seeds: Optional[int] = None, within: Optional[float] = None,
    no_curve: bool = False, price: Optional[Union[_Words, Mapping[str, Any]]] = None, out: Optional[_Path] = None,
    model: Optional[_Path] = None, gpu: Optional[_Path] = None, systems_file: Optional[_Path] = None,
    profile: Optional[_Path] = None, roofline: bool = False, price_source: Optional[str] = None,
    set: Optional[Mapping[str, Any]] = None, scheduler: Optional[Union[str, Scheduler]] = None,
    cache: Optional[Union[str, Cache]] = None, decoder: Optional[Union[str, Decoder]] = None,
    router: Optional[Union[str, Router]] = None, planner: Optional[str] = None, runtime: Optional[_Path] = None,
    host: Optional[_Path] = None, replicas: Optional[int] = None, workload: Optional[Union[_Path, Trace]] = None,
    arrivals: Optional[str] = None, rate: Optional[float] = None, requests: Optional[int] = None,
    seed: Optional[int] = None, input_tokens: Optional[int] = None, output_tokens: Optional[int] = None,
    columns: Optional[Union[_Words, Mapping[str, Any]]] = None, time_unit: Optional[str] = None,
    hash_tokens: Optional[int] = None, where: Optional[Union[_Words, Mapping[str, Any]]] = None,
    skip_failed: bool = False, skip_bad: bool = False, j: Optional[int] = None) -> DataFrame: ...
def sweep(set: Optional[Mapping[str, Any]] = None, *, systems: Optional[Any] = None, system: Optional[Any] = None,
    models: Optional[Any] = None, model: Optional[_Path] = None, gpus: Optional[Any] = None,
    gpu: Optional[_Path] = None, workloads: Optional[Any] = None, workload: Optional[Union[_Path, Trace]] = None,
    rates: Optional[Any] = None, rate: Optional[Any] = None, input_tokens: Optional[Any] = None,
    output_tokens: Optional[Any] = None, requests: Optional[Any] = None, seeds: Optional[int] = None,
    seed: Optional[Any] = None, scheduler: Optional[Union[str, Scheduler]] = None,
    cache: Optional[Union[str, Cache]] = None, decoder: Optional[Union[str, Decoder]] = None,
    router: Optional[Union[str, Router]] = None, planner: Optional[Any] = None, runtime: Optional[_Path] = None,
    host: Optional[_Path] = None, replicas: Optional[Any] = None, arrivals: Optional[Any] = None,
    systems_file: Optional[_Path] = None, profile: Optional[_Path] = None, price_source: Optional[str] = None,
    over: Optional[Mapping[str, Any]] = None, against: Optional[Mapping[str, Any]] = None, bound: bool = False,
    backend: Optional[str] = None, weights: Optional[_Path] = None, eos: Optional[str] = None,
    library: Optional[_Path] = None, device: Optional[int] = None, clock: Optional[str] = None,
    tokenizer: Optional[_Path] = None, chat: Optional[str] = None, reference: Optional[_Path] = None,
    slo_latency: Optional[_Time] = None, slo_ttft: Optional[_Time] = None, slo_tpot: Optional[_Time] = None,
    db: Optional[_Path] = None, any_build: bool = False, levels: Optional[str] = None, shard: Optional[str] = None,
    j: Optional[int] = None) -> DataFrame: ...
def figure(name: _Path, out: Optional[_Path] = None, *, gpu: Optional[_Path] = None, model: Optional[_Path] = None,
    set: Optional[Mapping[str, Any]] = None, host: Optional[_Path] = None, seeds: Optional[int] = None,
    j: Optional[int] = None, width: Optional[str] = None, font: Optional[str] = None, note: Optional[str] = None) -> Figure: ...
def bound(*, systems: Optional[_Words] = None, system: Optional[str] = None, no_run: bool = False,
    model: Optional[_Path] = None, gpu: Optional[_Path] = None, systems_file: Optional[_Path] = None,
    profile: Optional[_Path] = None, roofline: bool = False, price_source: Optional[str] = None,
    set: Optional[Mapping[str, Any]] = None, scheduler: Optional[Union[str, Scheduler]] = None,
    cache: Optional[Union[str, Cache]] = None, decoder: Optional[Union[str, Decoder]] = None,
    router: Optional[Union[str, Router]] = None, planner: Optional[str] = None, runtime: Optional[_Path] = None,
    host: Optional[_Path] = None, replicas: Optional[int] = None, workload: Optional[Union[_Path, Trace]] = None,
    arrivals: Optional[str] = None, rate: Optional[float] = None, requests: Optional[int] = None,
    seed: Optional[int] = None, input_tokens: Optional[int] = None, output_tokens: Optional[int] = None,
    columns: Optional[Union[_Words, Mapping[str, Any]]] = None, time_unit: Optional[str] = None,
    hash_tokens: Optional[int] = None, where: Optional[Union[_Words, Mapping[str, Any]]] = None,
    skip_failed: bool = False, skip_bad: bool = False, slo_latency: Optional[_Time] = None,
    slo_ttft: Optional[_Time] = None, slo_tpot: Optional[_Time] = None, j: Optional[int] = None) -> Any: ...
def explain(*, system: Optional[str] = None, model: Optional[_Path] = None, gpu: Optional[_Path] = None,
    systems_file: Optional[_Path] = None, profile: Optional[_Path] = None, roofline: bool = False,
    price_source: Optional[str] = None, set: Optional[Mapping[str, Any]] = None,
    scheduler: Optional[Union[str, Scheduler]] = None, cache: Optional[Union[str, Cache]] = None,
    decoder: Optional[Union[str, Decoder]] = None, router: Optional[Union[str, Router]] = None,
    planner: Optional[str] = None, runtime: Optional[_Path] = None, host: Optional[_Path] = None,
    replicas: Optional[int] = None, requests: Optional[int] = None, input_tokens: Optional[int] = None,
    output_tokens: Optional[int] = None, step: Optional[int] = None, refresh: Optional[int] = None,
    reuse: Optional[int] = None, backend: Optional[str] = None, weights: Optional[_Path] = None,
    eos: Optional[str] = None, library: Optional[_Path] = None, device: Optional[int] = None,
    rounds: Optional[int] = None, once: bool = False, why: Optional[str] = None) -> Any: ...

def call(command: str, *words: Any, **options: Any) -> Any: ...
def cite(db: _Path, run: Optional[int] = None) -> str: ...
def listing(what: str) -> DataFrame: ...
def plot(table: Union[DataFrame, _Path], x: str, y: str, by: Union[None, str, Iterable[str]] = None, ax: Optional[Axes] = None,
         against: Optional[str] = None, **style: Any) -> Axes: ...
def program() -> str: ...
def read(db: _Path, table: str = "runs") -> DataFrame: ...
def report(db: _Path, out: _Path = "report.html") -> pathlib.Path: ...
