"""A real Slurm on this machine: munge, a controller and two nodes of one core each, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")


def missing() -> list[str]:
    return [name for name in PROGRAMS if not find(name)]


def find(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Slurm:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._others: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._write_configuration()
        os.environ["SLURM_CONF"] = str(self.conf)
        self._start_munge()
        self._others.append(self._daemon("slurmctld", "-D"))
        for name in ("n1", "n2"):
            self.start_node(name)
        self.wait_until_idle(2)

    def start_node(self, name: str) -> None:
        self.nodes[name] = self._daemon("slurmd", "-D", "-N", name)

    def kill_node(self, name: str) -> None:
        """As a machine that loses its power: the daemon and all that it runs are gone, and Slurm is told."""
        node = self.nodes.pop(name)
        node.kill()
        node.wait()
        self.ask("scontrol", "update", f"nodename={name}", "state=down", "reason=test")

    def bring_back(self, name: str) -> None:
        self.start_node(name)
        self.ask("scontrol", "update", f"nodename={name}", "state=resume")

    def wait_until_idle(self, count: int) -> None:
        until = time.monotonic() + 60
        while self.ask("sinfo", "-h", "-N", "-o", "%T").split().count("idle") < count:
            if time.monotonic() > until:
                logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))
                raise TimeoutError(f"Slurm's nodes did not come up:\n{logs}")
            time.sleep(0.2)

    def ask(self, *command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True).stdout

    def stop(self) -> None:
        self.ask("scancel", "--user=root")
        for process in [*self.nodes.values(), *self._others]:
            process.terminate()
        for process in [*self.nodes.values(), *self._others]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()

    def _daemon(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = find(name)
        assert program
        # A session of its own: Ctrl-C in pytest is not for it.
        return subprocess.Popen(
            [program, *arguments],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "SLURM_CONF": str(self.conf)},
            start_new_session=True,
        )  # fmt: skip

    def _start_munge(self) -> None:
        munged = find("munged")
        assert munged
        until = time.monotonic() + 30
        # Another test process may start it at the same moment: whoever is first, it works.
        while subprocess.run(["munge", "-n"], capture_output=True).returncode:
            assert time.monotonic() < until, "munge does not work"
            Path("/run/munge").mkdir(exist_ok=True)
            shutil.chown("/run/munge", "munge", "munge")
            subprocess.run(["runuser", "-u", "munge", "--", munged, "--force"], capture_output=True)
            time.sleep(0.2)

    def _write_configuration(self) -> None:
        host = socket.gethostname().split(".")[0]
        (self.folder / "state").mkdir(parents=True)
        controller, first, second = free_port(), free_port(), free_port()
        self.conf.write_text(f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=cred_expire=5
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MaxArraySize=4
KillWait=5
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd-%n.log
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=1 State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
""")


@contextlib.contextmanager
def running_slurm(folder: Path) -> Iterator[Slurm]:
    slurm = Slurm(folder)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()
        os.environ.pop("SLURM_CONF", None)
