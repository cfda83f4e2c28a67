"""What the module raises."""

import os
import sysconfig

_NOT_THE_USERS = (os.path.dirname(os.path.abspath(__file__)) + os.sep,
                  *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}, "<frozen")


class Error(Exception):
    """Run-time failure: a file, a device, data (`status` 1)."""

    status = 1


class UsageError(Error, ValueError):
    """Invalid command line or configuration (`status` 2)."""

    status = 2


class PolicyError(Exception):
    """A policy in Python raised, or did not return; the run was ended. `__cause__` is what it raised, of whose class the
    error is, too: `except ConnectionError` catches the ConnectionError of a policy."""

    def __str__(self):
        return str(self.args[0]) if self.args else ""


def file_of(code):
    """The file of a piece of code as its author knows it."""
    return "a cell" if "ipykernel_" in code.co_filename else code.co_filename


def place_of(raised):
    """Where in the user's code it was raised, in brackets, or nothing."""
    place, trace = "", raised.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_NOT_THE_USERS):
            place = f" (in {code.co_name}, {file_of(code)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place


def policy_error(policy, raised):
    """A PolicyError that is also of the class of what was raised, where Python allows the two in one."""
    sentence = f"{type(policy).__name__} raised {type(raised).__name__}: {raised}{place_of(raised)}"
    try:
        kind = type("PolicyError", (PolicyError, type(raised)), {"__module__": "unmask", "__str__": PolicyError.__str__})
        error = kind.__new__(kind, sentence)
        for name in ("errno", "strerror", "filename"):
            if isinstance(raised, OSError):
                setattr(error, name, getattr(raised, name))
        vars(error).update(vars(raised))
    except (TypeError, AttributeError):  # two classes that C made differently
        error = PolicyError()
    error.args = (sentence,)
    return error
