"""How far a call is: a bar of tqdm where that is installed, else a line; on terminals and in notebooks, after a second."""

import os
import sys
import time
import warnings

PATIENCE_S = 1.0


def _is_watched():
    """Whether somebody looks at standard error: a terminal, or the notebook of an IPython kernel."""
    if sys.stderr is None:
        return False
    ipython = sys.modules.get("IPython")
    if ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None:
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # closed, or something else that is written to
        return False


def _size():
    """A terminal that does not know its size has one for tqdm, which would show nothing."""
    try:
        is_known = all(os.get_terminal_size(sys.stderr.fileno()))
    except (OSError, ValueError, AttributeError):
        is_known = True
    return {} if is_known else {"ncols": 80, "nrows": 24}


class Progress:
    """Of one call. Nothing is shown in its first second, nor where nobody looks."""

    def __init__(self, command):
        self._command, self._since, self._bar, self._width = command, time.monotonic(), None, 0

    def show(self, n_done, n_total, noun):
        """`n_total` 0: not known."""
        if time.monotonic() - self._since < PATIENCE_S or not _is_watched():
            return
        try:
            with warnings.catch_warnings():  # of widgets that a notebook has not
                warnings.simplefilter("ignore")
                from tqdm.auto import tqdm
        except Exception:  # not installed, or it does not go with what else is
            self._line(f"{self._command}: {n_done}{f'/{n_total}' if n_total else ''} {noun}")
            return
        if self._bar is None:
            self._bar = tqdm(desc=self._command, total=n_total or None, initial=n_done, unit=f" {noun}", leave=False,
                             mininterval=0, **_size())
        self._bar.unit, self._bar.total = f" {noun}", n_total or None
        self._bar.n = n_done
        self._bar.refresh()

    def _line(self, text):
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def close(self):
        if self._bar is not None:
            self._bar.close()
        elif self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
        self._bar, self._width = None, 0
