"""Who writes a run, and whether that process is still alive."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from rollbook.records import Process

_PROC = Path("/proc")


def this_process() -> Process:
    return process_of(os.getpid())


def process_of(pid: int) -> Process:
    """A process on this machine, as the process table has it now."""
    seen = _look_up(pid)
    return Process(
        host=socket.gethostname(),
        pid=pid,
        boot_id=_boot_id(),
        pid_namespace=_pid_namespace(),
        pid_started=seen[1] if seen else 0,
    )


def is_alive(process: Process) -> bool | None:
    """None when it cannot be told from here: another machine, another boot, another pid namespace, or no /proc."""
    boot_id = _boot_id()
    # Two machines may go by one name: another boot may be another machine, whose process table is not ours.
    if process.host != socket.gethostname() or not boot_id or process.boot_id != boot_id:
        return None
    namespace = _pid_namespace()
    if not namespace or process.pid_namespace != namespace or not process.pid_started:
        return None
    seen = _look_up(process.pid)
    if seen is None:
        # Where /proc hides other users' processes (hidepid), only a signal tells "gone" from "not shown".
        return None if _takes_signals(process.pid) else False
    state, started = seen
    return state not in "ZXx" and started == process.pid_started


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _look_up(pid: int) -> tuple[str, int] | None:
    """State and start time (in clock ticks since the boot) of a process; None when it is not shown."""
    try:
        stat = (_PROC / f"{pid:d}/stat").read_bytes()
    except OSError:
        return None
    # proc(5): "pid (comm) state ppid ...", where comm may hold spaces and parentheses; starttime is field 22.
    fields = stat.rpartition(b")")[2].split()
    return (fields[0].decode(), int(fields[19])) if len(fields) > 19 else None


def _takes_signals(pid: int) -> bool:
    if pid <= 0:  # would mean a whole group of processes
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
