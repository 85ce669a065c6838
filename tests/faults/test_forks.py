"""Forked children inherit the handle but not the duty: they neither write nor finish the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from children import Complete, files_below, statuses, steps_of

CHILD_DOES = {
    "nothing": "pass",
    "logs": "[run.log({'value': -1.0}, step=10_000 + i) for i in range(1000)]; time.sleep(0.6)",
    "logs a mean": "run.log_mean({'value': -1.0}, step=10_000)",
    "finishes": "run.finish()",
    "fails it": "run.finish('failed', 'by the child')",
    "saves": "assert run.checkpoint(7, {'w': __import__('numpy').zeros(3)}) is None",
    "draws": "assert run.figure('f', __import__('numpy').zeros((4, 4))) is None",
    "tags": "run.tag('child'); run.note('child')",
    "leaves a with block": "run.__exit__(None, None, None)",
    "exits": "sys.exit(3)",
    "raises": "raise ValueError('in the child')",
    "gets SIGTERM": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)",
}

FORKS = """
    import warnings
    run = start()
    for step in range(500):
        run.log({"value": step}, step=step)
    run.checkpoint(500, {"w": __import__("numpy").zeros(3)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        exec(sys.argv[1])
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    print("child", os.waitstatus_to_exitcode(status))
    for step in range(500, 1000):
        run.log({"value": step}, step=step)
    run.finish()
"""


@pytest.mark.parametrize("action", CHILD_DOES)
def test_whatever_a_forked_child_does_the_parents_run_is_untouched(complete: Complete, book: Path, action: str) -> None:
    ended = complete(FORKS, CHILD_DOES[action])

    assert ended.returncode == 0, ended.stderr
    assert statuses(book) == ["finished"]
    assert steps_of(book) == list(range(1000))
    assert [name for name in files_below(book) if "/checkpoints/7" in name or "/media/" in name] == []
    assert not any((book / "journal").iterdir())
    expected = {"exits": 3, "raises": 1, "gets SIGTERM": -15}.get(action, 0)
    assert f"child {expected}" in ended.stdout


def test_children_of_multiprocessing_leave_the_run_alone(complete: Complete, book: Path) -> None:
    ended = complete(
        """
        import multiprocessing, warnings
        run = start()
        def work(number):
            run.log({"value": -1.0}, step=10_000 + number)
            run.checkpoint(number, {"w": __import__("numpy").zeros(3)})
            if number == 1:
                run.finish()
            if number == 2:
                raise ValueError("in a worker")
            if number == 3:
                sys.exit(1)
            sigterm = signal.getsignal(signal.SIGTERM)
            # One write: the workers share a pipe.
            os.write(1, b"default\\n" if sigterm is signal.SIG_DFL else b"ours\\n")
        warnings.simplefilter("ignore")
        context = multiprocessing.get_context("fork")
        workers = [context.Process(target=work, args=(number,)) for number in range(6)]
        for step in range(100):
            run.log({"value": step}, step=step)
        for worker in workers: worker.start()
        for step in range(100, 200):
            run.log({"value": step}, step=step)
        for worker in workers: worker.join()
        """
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["default"] * 4
    assert statuses(book) == ["finished"]
    assert steps_of(book) == list(range(200))


def test_workers_of_a_pool_can_be_terminated(complete: Complete, book: Path) -> None:
    ended = complete(
        """
        import multiprocessing, warnings
        warnings.simplefilter("ignore")
        run = start()
        run.log({"value": 1.0})
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(sum(pool.map(abs, range(10))))
        """
    )

    assert ended.stdout.split() == ["45"]
    assert ended.returncode == 0, ended.stderr
    assert statuses(book) == ["finished"]


def test_a_fork_while_a_thread_logs_neither_hangs_nor_loses_rows(complete: Complete, book: Path) -> None:
    ended = complete(
        """
        import warnings
        warnings.simplefilter("ignore")
        run = start()
        def log():
            for step in range(100_000):
                run.log({"value": step}, step=step)
        thread = threading.Thread(target=log)
        thread.start()
        for _ in range(30):
            pid = os.fork()
            if pid == 0:
                run.log({"value": -1.0})
                run.finish()
                os._exit(0)
            os.waitpid(pid, 0)
        thread.join()
        """
    )

    assert ended.returncode == 0, ended.stderr
    assert steps_of(book) == list(range(100_000))
    assert statuses(book) == ["finished"]


def test_a_forked_child_may_track_a_run_of_its_own(complete: Complete, book: Path) -> None:
    ended = complete(
        """
        import warnings
        warnings.simplefilter("ignore")
        run = start("parent")
        run.log({"value": 0.0})
        while not list(run.folder.glob("attempts/0/attempt.json")):
            time.sleep(0.01)  # a thread that imports while one forks leaves a lock behind in the child
        pid = os.fork()
        if pid == 0:
            own = start("child")
            own.log({"value": 1.0}, step=1)
            sys.exit(2)
        os.waitpid(pid, 0)
        """
    )

    assert ended.returncode == 0, ended.stderr
    assert sorted(statuses(book)) == ["failed", "finished"]
    assert steps_of(book) == [0, 1]
