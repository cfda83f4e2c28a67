#!/usr/bin/env python3
"""bench_decisions.py [REPEATS]: what a decision of a policy in Python costs beyond one of the built-in scheduler, which
decides the same.

A closed loop of clients keeps so many requests in the system. Both are run with few and with many requests; the difference
of the two, over the decisions in between, has no start and no trial in it. `wall` is the least of all repeats, `processor` is
what Python and the program computed, which a busy machine changes less: on a quiet one each looks for what the other answers
without sleeping. `others` is how much of one processor the rest of the machine used meanwhile. Ends with status 1 where a
decision in order is above its limit, by the wall on a quiet machine and by both on a busy one, or decides otherwise.
`make` first, or install the wheel."""

import os
import resource
import sys
import time

import unmask

AT_MOST_US = {100: 40, 1000: 80}  # of a decision in order
QUIET = 0.15  # of one processor, used by others
SIZES = {100: (200, 2200), 1000: (1200, 4200)}  # requests of the short and of the long run, by clients


class InOrder(unmask.Scheduler):
    """As the built-in phase-multiplexed one, as far as nothing is crowded out."""

    def __init__(self):
        self.n = 0

    def schedule(self, view, batch):
        self.n += not view.is_trial
        if not batch.run_all():
            for request in view.running:
                batch.run(request)
        self.admit(view, batch)

    def admit(self, view, batch):
        for request in view.waiting:
            if not batch.admit(request):
                break


class ByObjects(InOrder):
    """Every waiting request is looked at: in their order, found by sorting."""

    def admit(self, view, batch):
        for request in sorted(view.waiting, key=lambda r: r.arrival_ns):
            if not batch.admit(request):
                break


class ByColumn(InOrder):
    """The same by one column, which numpy sorts where it is there."""

    def admit(self, view, batch):
        waiting = view.waiting
        times = waiting.column("arrival_ns") if waiting else ()
        for i in times.argsort(kind="stable") if hasattr(times, "argsort") else sorted(range(len(times)), key=times.__getitem__):
            if not batch.admit(waiting[i]):
                break


def processor_s():
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def machine_s():
    """What all processors computed, for whomever, and what was stolen from them; 0 where nobody tells."""
    try:
        with open("/proc/stat") as stat:
            user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    except OSError:
        return 0
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def timed(clients, requests, policy):
    """(wall seconds, processor seconds, decisions, results)"""
    options = {} if policy is None else {"scheduler": policy}
    wall, processor = time.perf_counter(), processor_s()
    run = unmask.run(gpu="h100", system="dllm-serve", workload="burst", arrivals="closed-loop", requests=requests,
                     set={"workload.arrivals.clients": clients, "max_requests": 64}, **options)
    results = {key: run[key] for key in ("latency_s", "ttft_s", "steps", "makespan_s", "max_batch")}
    return time.perf_counter() - wall, processor_s() - processor, getattr(policy, "n", 0), results


def measured(clients, kinds, repeats):
    """By policy: (decisions, wall and processor seconds of them, results of the long run). How much of one processor others
    used meanwhile."""
    began, used = time.perf_counter(), machine_s() - processor_s()
    runs = {(kind, n): [] for kind in kinds for n in SIZES[clients]}
    for _ in range(repeats):
        for kind, n in runs:
            runs[kind, n].append(timed(clients, n, kind() if kind is not None else None))
    few, many = SIZES[clients]
    found = {}
    for kind in kinds:
        short, long = runs[kind, few], runs[kind, many]
        took = [min(run[i] for run in long) - min(run[i] for run in short) for i in range(2)]
        found[kind] = (long[0][2] - short[0][2], *took, long[0][3])
    return found, max(0, machine_s() - processor_s() - used) / (time.perf_counter() - began)


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    is_fast = True
    print(f"Python {sys.version.split()[0]}, unmask {unmask.__version__}, the least of {repeats} repeats\n")
    print("| in the system | policy | decisions | wall, us | processor, us | at most, us | others | as built in |")
    print("|---|---|---|---|---|---|---|---|")
    for clients in SIZES:
        found, others = measured(clients, (None, InOrder, ByObjects, ByColumn), repeats)
        _, *built_in, results = found.pop(None)
        for kind, (n, wall, processor, same) in found.items():
            costs = [(took - base) / n * 1e6 for took, base in zip((wall, processor), built_in)]
            limit = AT_MOST_US[clients] if kind is InOrder else None
            cost = costs[0] if others < QUIET else min(costs)
            is_fast = is_fast and (limit is None or cost <= limit) and same == results
            print(f"| {clients} | {kind.__name__} | {n} | {costs[0]:.0f} | {costs[1]:.0f} | {limit or ''} | {others:.2f} | "
                  f"{'yes' if same == results else 'NO'} |", flush=True)
    return 0 if is_fast else 1


if __name__ == "__main__":
    sys.exit(main())
