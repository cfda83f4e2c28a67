"""Results as people look at them."""


class Run(dict):
    """What `run` found: a dict with all fields, printed as one line."""

    __slots__ = ()

    def __repr__(self):
        try:
            done = f"{self['completed']} of {self['requests']} requests in {self['makespan_s']:.4g} s"
            latency = self["latency_s"] or {}
            took = f", latency mean {latency['mean']:.4g} s, p99 {latency['p99']:.4g} s" if latency.get("mean") is not None else ""
            warned = f"; {len(self['warnings'])} warnings" if self["warnings"] else ""
            return (f"<Run of {self['system']}, {self['model']} on {self['gpu']}, {self['trace']}: {done}, "
                    f"{self['throughput_tok_s']:.4g} tok/s{took}{warned}; {len(self)} fields>")
        except (KeyError, TypeError, ValueError):  # somebody took fields out
            return dict.__repr__(self)

    def _repr_pretty_(self, printer, is_cycle):
        printer.text(repr(self))


def of(found):
    """The same with runs in it as such."""
    if isinstance(found, list):
        return [of(one) for one in found]
    return Run(found) if isinstance(found, dict) and "latency_s" in found and "makespan_s" in found else found
