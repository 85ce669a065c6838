"""How a program ends, noticed on behalf of the runs that it has open.

An uncaught exception, SIGINT, SIGTERM, `sys.exit(1)` and a plain end each leave their mark on every live run. Of a bare
`raise SystemExit(1)` outside of the run's `with` block, Python tells nobody but whoever launched the program: without
a launcher of ours, it looks like a plain end. Forked children inherit the handles but not the duty: they neither write
nor finish them.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - later, while the program ends, whoever needs it could not load it
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol

from rollbook.records import State

Ending = tuple[State, str | None]


class Endable(Protocol):
    def _finish_at_exit(self, state: State, reason: str | None) -> None: ...
    def _prepare_for_fork(self) -> None: ...
    def _disown(self) -> None: ...


_live: list[Endable] = []
_ending: Ending | None = None
_unhandled_ctrl_c = False
_restore: list[Callable[[], object]] = []


def register(run: Endable) -> None:
    if not _live:
        _install()
    _live.append(run)


def unregister(run: Endable) -> None:
    if run in _live:
        _live.remove(run)
        if not _live:
            _uninstall()


def of_exception(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> Ending:
    """What an exception that leaves a `with` block or the program says about the run."""
    if issubclass(kind, SystemExit):
        if _ending:
            return _ending
        code = getattr(error, "code", None)
        return ("finished", None) if code in (None, 0) else ("failed", f"sys.exit({code!r})")
    reason = "".join(traceback.format_exception(kind, error, trace))
    return ("interrupted" if issubclass(kind, KeyboardInterrupt) else "failed"), reason


class _Exit(SystemExit):
    """Notices that nobody has caught it: Python itself then asks for its code."""

    @property
    def code(self) -> Any:  # type: ignore[override]
        code = self.args[0] if self.args else None
        if sys._getframe().f_back is None and code not in (None, 0):
            _note(("failed", f"sys.exit({code!r})"))
        return code


def _install() -> None:
    global _ending
    _ending = None
    previous_hook, previous_exit = sys.excepthook, sys.exit

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _unhandled_ctrl_c
        _unhandled_ctrl_c = issubclass(kind, KeyboardInterrupt)
        _note(of_exception(kind, error, trace))
        previous_hook(kind, error, trace)

    def exit_and_note(code: Any = None, /) -> NoReturn:
        try:
            previous_exit(code)
        except SystemExit as error:
            if threading.current_thread() is not threading.main_thread():
                raise
            raise _Exit(*error.args) from None

    def restore() -> None:
        if sys.excepthook is excepthook:
            sys.excepthook = previous_hook
        if sys.exit is exit_and_note:
            sys.exit = previous_exit

    sys.excepthook = excepthook
    sys.exit = exit_and_note  # at exit the code is no longer known, and exit code 1 is not a finished run
    atexit.register(_finish_all)
    _restore.extend([restore, lambda: atexit.unregister(_finish_all)])
    _install_sigterm()


def _install_sigterm() -> None:
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return  # only the main thread may; and a program's own handler knows better

    def terminate(number: int, frame: FrameType | None) -> None:
        if _ending:
            return  # is ending already
        stack = "".join(traceback.format_stack(frame))
        _note(("interrupted", f"{signal.Signals(number).name} received at\n{stack}"))
        # Unwinds like Ctrl-C does, so that the program's own clean-up runs; 143 is what a shell calls this ending.
        raise SystemExit(128 + number)

    def restore() -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, terminate)
    _restore.append(restore)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """While a run is being ended, SIGTERM and Ctrl-C wait: schedulers and people send them twice."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    previous = {
        number: signal.signal(number, lambda got, _: waiting.append(got)) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if waiting and _ending is None:  # the program was not about to end: now it is
            signal.raise_signal(waiting[0])


def _uninstall() -> None:
    while _restore:
        _restore.pop()()


def _note(ending: Ending) -> None:
    global _ending
    _ending = _ending or ending


def _finish_all() -> None:
    for run in list(_live):
        run._finish_at_exit(*(_ending or ("finished", None)))
    if _ending and _ending[0] == "interrupted" and _unhandled_ctrl_c:
        # Python then dies of SIGINT, by which a shell loop knows to stop; but whatever is imported while it ends makes
        # it forget that. This reminds it.
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def _prepare_for_fork() -> None:
    for run in _live:
        run._prepare_for_fork()


def _disown_in_child() -> None:
    for run in _live:
        run._disown()
    _live.clear()
    _uninstall()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_prepare_for_fork, after_in_child=_disown_in_child)
