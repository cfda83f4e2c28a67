"""What the module raises."""


class Error(Exception):
    """Something in the world is not as it must be: a file, a device, memory (`status` 1)."""

    status = 1


class UsageError(Error, ValueError):
    """The request makes no sense (`status` 2)."""

    status = 2


class PolicyError(Exception):
    """A policy in Python raised, or did not return; the run was ended. `__cause__` is what it raised, of whose class the
    error is, too: `except ConnectionError` catches the ConnectionError of a policy."""

    def __str__(self):
        return str(self.args[0]) if self.args else ""


def policy_error(policy, raised):
    """A PolicyError that is also of the class of what was raised, where Python allows the two in one."""
    sentence = f"{type(policy).__name__} raised {type(raised).__name__}: {raised}"
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
