# ruff: noqa: E501 - hostile input reads best a line a kind
"""How a program ends is what its runs say, and Rollbook does not change how it ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from children import Complete, Launch, statuses, steps_of, wait_ready, wait_until


def reasons(book: Path) -> list[str | None]:
    files = sorted(book.glob("tasks/*/*/attempts/*/status.json"))
    return [json.loads(file.read_text())["reason"] for file in files]


@pytest.mark.parametrize(
    ("program", "exit_code", "status", "reason"),
    [
        ("run = start(); run.log({'value': 1})", 0, "finished", None),
        ("run = start(); run.log({'value': 1}); run.finish()", 0, "finished", None),
        ("run = start(); run.log({'value': 1}); 1 / 0", 1, "failed", "ZeroDivisionError"),
        ("run = start(); run.log({'value': 1}); sys.exit(1)", 1, "failed", "sys.exit(1)"),
        ("run = start(); run.log({'value': 1}); sys.exit('no data')", 1, "failed", "no data"),
        ("run = start(); run.log({'value': 1}); sys.exit(0)", 0, "finished", None),
        ("run = start(); run.log({'value': 1}); sys.exit()", 0, "finished", None),
        ("run = start(); run.log({'value': 1}); sys.exit(77)", 77, "failed", "77"),
        ("run = start(); run.log({'value': 1}); run.finish(); sys.exit(3)", 3, "finished", None),
        ("run = start(); run.log({'value': 1}); exec('try: sys.exit(1)\\nexcept SystemExit: pass')", 0, "finished", None),
        (
            "run = start(); run.log({'value': 1}); exec('try: sys.exit(1)\\nexcept SystemExit as e: print(e.code)')",
            0, "finished", None,
        ),
        ("run = start(); run.log({'value': 1}); os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", -2, "interrupted", "KeyboardInterrupt"),
        ("with start() as run: run.log({'value': 1})", 0, "finished", None),
        ("with start() as run: run.log({'value': 1}); 1 / 0", 1, "failed", "ZeroDivisionError"),
        ("with start() as run: run.log({'value': 1}); sys.exit(5)", 5, "failed", "5"),
        ("with start() as run: run.log({'value': 1}); raise SystemExit(6)", 6, "failed", "6"),
        ("with start() as run: run.log({'value': 1}); raise KeyboardInterrupt", -2, "interrupted", "KeyboardInterrupt"),
        ("with start() as run: run.log({'value': 1}); run.finish()", 0, "finished", None),
        ("with start() as run: run.log({'value': 1}); raise ValueError('\\udc80\\0\\x1b[31m')", 1, "failed", "ValueError"),
        ("run = start(); run.log({'value': 1}); raise ValueError('\\udc80 no text')", 1, "failed", "ValueError"),
        ("run = start(); run.log({'value': 1}); time.sleep(0.6); os._exit(4)", 4, "lost", None),
        ("def f():\n    time.sleep(0.8); run.log({'value': 1})\nrun = start(); threading.Thread(target=f).start()", 0, "finished", None),
        ("run = start(); run.log({'value': 1}); threading.Thread(target=time.sleep, args=(99,), daemon=True).start()", 0, "finished", None),
    ],
)  # fmt: skip
def test_status_reason_and_exit_code_are_those_of_the_ending(
    complete: Complete, book: Path, program: str, exit_code: int, status: str, reason: str | None
) -> None:
    ended = complete(program)

    assert ended.returncode == exit_code, ended.stderr
    assert statuses(book) == [status]
    assert steps_of(book) == [0]
    (told,) = reasons(book)
    assert (told is None) if reason is None else reason in (told or "")
    assert "Exception ignored" not in ended.stderr


@pytest.mark.parametrize("shape", ["plain", "with", "in a thread"])
def test_sigterm_interrupts_the_run_and_ends_the_program_as_sigterm_does(
    launch: Launch, book: Path, shape: str
) -> None:
    bodies = {
        "plain": "run = start(); run.log({'value': 1}); ready(); time.sleep(60)",
        "with": "with start() as run:\n    run.log({'value': 1}); ready(); time.sleep(60)",
        "in a thread": (
            "run = start(); run.log({'value': 1})\n"
            "threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); ready(); time.sleep(60)"
        ),
    }
    child = launch(bodies[shape])
    wait_ready(child)

    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=20)

    assert child.returncode in (143, -15)
    assert statuses(book) == ["interrupted"]
    assert "SIGTERM" in (reasons(book)[0] or "")
    assert steps_of(book) == [0]


def test_sigterm_lets_the_programs_own_clean_up_run(launch: Launch, book: Path) -> None:
    child = launch(
        """
        run = start()
        try:
            ready()
            time.sleep(60)
        finally:
            run.log({"value": 1})
            print("cleaned")
        """
    )
    wait_ready(child)

    child.send_signal(signal.SIGTERM)
    out, _ = child.communicate(timeout=20)

    assert "cleaned" in out
    assert steps_of(book) == [0]
    assert statuses(book) == ["interrupted"]


def test_a_programs_own_sigterm_handler_is_left_alone(launch: Launch, book: Path) -> None:
    child = launch(
        """
        signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
        run = start()
        run.log({"value": 1})
        time.sleep(0.6)
        ready()
        time.sleep(60)
        """
    )
    wait_ready(child)

    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=20)

    assert child.returncode == 9
    assert statuses(book) == ["lost"]


def test_sigint_in_the_middle_of_logging_keeps_whole_rows(launch: Launch, book: Path) -> None:
    child = launch(
        "run = start(); run.log({'value': 0, 'two': 0}); ready()\nwhile True: run.log({'value': 1, 'two': 1})"
    )
    wait_ready(child)
    wait_until(lambda: bool(steps_of(book)))

    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)

    assert child.returncode == -2, err
    assert statuses(book) == ["interrupted"]
    assert steps_of(book) == steps_of(book, "two") == list(range(len(steps_of(book))))


def test_two_runs_open_at_once_each_end_as_they_should(complete: Complete, book: Path) -> None:
    ended = complete(
        "one = start('a'); two = start('b'); one.log({'value': 1}); one.finish(); two.log({'value': 1}); 1 / 0"
    )

    assert ended.returncode == 1
    assert sorted(statuses(book)) == ["failed", "finished"]


def test_an_exception_fails_both_runs_that_are_open(complete: Complete, book: Path) -> None:
    ended = complete("one = start('a'); two = start('b'); 1 / 0")

    assert ended.returncode == 1
    assert statuses(book) == ["failed", "failed"]
    assert all("ZeroDivisionError" in (reason or "") for reason in reasons(book))


def test_an_exception_that_was_handled_does_not_fail_the_run_after_it(complete: Complete, book: Path) -> None:
    ended = complete(
        """
        try:
            with start("a") as run:
                raise ValueError("first")
        except ValueError:
            pass
        with start("b") as run:
            run.log({"value": 1})
        """
    )

    assert ended.returncode == 0
    assert sorted(statuses(book)) == ["failed", "finished"]


def test_the_hooks_are_given_back_when_the_last_run_ends(complete: Complete) -> None:
    ended = complete(
        """
        before = (sys.excepthook, sys.exit, signal.getsignal(signal.SIGTERM))
        one, two = start("a"), start("b")
        one.finish()
        two.finish()
        print((sys.excepthook, sys.exit, signal.getsignal(signal.SIGTERM)) == before)
        """
    )

    assert ended.stdout.strip() == "True"
