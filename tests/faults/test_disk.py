"""A full disk or a vanished book never stops training: kept in memory, tried again, reported at the end."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import Complete, Launch, statuses, steps_of, wait_ready, wait_until

import rollbook


@pytest.fixture
def small_disk(book: Path) -> Iterator[Path]:
    """A file system of 2 MB below the book; without the right to mount, tests that need it are not run."""
    book.parent.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(book.parent)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here; a limit on file sizes stands in for the full disk")
    yield book.parent
    subprocess.run(["umount", "--lazy", str(book.parent)], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return ballast


LOGS_WHEN_TOLD = """
    import numpy as np
    from rollbook.track import run as run_module
    run_module.LAST_TRY_SECONDS = 1.0
    run = start()
    step = 0
    ready()
    for line in iter(lambda: sys.stdin.readline().strip(), "end"):
        for _ in range(200):
            run.log({"value": step}, step=step)
            step += 1
        if line == "save":
            print("checkpoint", run.checkpoint(step, {"w": np.random.default_rng(0).random(400_000)}), flush=True)
            print("figure", run.figure("noise", np.random.default_rng(0).random((900, 900, 3))), flush=True)
            run.tag("late")
            run.note("late")
        print("logged", step, flush=True)
    run.finish()
    print("over", flush=True)
"""


class Trainer:
    """A training in another process, told through its stdin when to go on."""

    def __init__(self, launch: Launch) -> None:
        self.child = launch(LOGS_WHEN_TOLD)
        wait_ready(self.child)

    def order(self, word: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(word + "\n")
        self.child.stdin.flush()

    def go_on(self, word: str = "log") -> list[str]:
        """200 rows more; what the program printed meanwhile."""
        self.order(word)
        assert self.child.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith("logged"):
            line = self.child.stdout.readline()
            assert line, self.child.communicate()[1]
            lines.append(line.strip())
        return lines

    def end(self) -> str:
        """Its stderr."""
        self.order("end")
        out, err = self.child.communicate(timeout=60)
        assert "over" in out, err
        assert self.child.returncode == 0
        assert "Traceback" not in err
        return err


def test_rows_logged_while_the_disk_is_full_are_there_when_it_has_room_again(
    launch: Launch, book: Path, small_disk: Path
) -> None:
    trainer = Trainer(launch)
    trainer.go_on()
    wait_until(lambda: len(steps_of(book)) == 200)
    ballast = fill(small_disk)

    for _ in range(10):
        trainer.go_on()
    lines = trainer.go_on("save")
    ballast.unlink()
    err = trainer.end()

    assert "checkpoint None" in lines
    assert "figure None" in lines
    assert steps_of(book) == list(range(2400))
    assert statuses(book) == ["finished"]
    assert "cannot write" in err
    assert "checkpoint 2400 was not saved" in err
    assert "media 'noise' was not saved" in err


def test_a_disk_that_stays_full_costs_rows_that_are_counted_at_the_end(
    launch: Launch, book: Path, small_disk: Path
) -> None:
    trainer = Trainer(launch)
    trainer.go_on()
    wait_until(lambda: len(steps_of(book)) == 200)
    fill(small_disk)
    for _ in range(10):
        trainer.go_on("save")

    err = trainer.end()

    steps = steps_of(book)
    assert steps == list(range(len(steps)))
    assert f"{2200 - len(steps):,} rows could not be written" in err


def test_a_checkpoint_and_a_figure_that_do_not_fit_leave_nothing_behind(
    launch: Launch, book: Path, small_disk: Path
) -> None:
    trainer = Trainer(launch)

    lines = trainer.go_on("save")
    err = trainer.end()

    assert {"checkpoint None", "figure None"} <= set(lines)
    assert "was not saved" in err
    assert steps_of(book) == list(range(200))
    (run,) = rollbook.open(book).runs()
    assert run.checkpoints() == []
    leftovers = [path for part in ("checkpoints", "media") for path in (run.folder / part).rglob("*") if path.is_file()]
    assert leftovers == []


def test_a_limit_on_file_sizes_does_not_stop_training(complete: Complete, book: Path) -> None:
    ended = complete(
        """
        import numpy as np, resource
        from rollbook.track import run as run_module
        run_module.LAST_TRY_SECONDS = 1.0
        run = start()
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for step in range(5000):
            run.log({"value": step}, step=step)
            if step % 500 == 0:
                time.sleep(0.45)
        print(run.checkpoint(1, {"w": np.zeros(100_000)}))
        run.finish()
        print("over")
        """
    )

    assert ended.stdout.split() == ["None", "over"], ended.stderr
    steps = steps_of(book)
    assert 500 <= len(steps) < 5000
    assert steps == list(range(len(steps)))
    assert f"{5000 - len(steps):,} rows could not be written" in ended.stderr
    assert statuses(book) == ["finished"]


def test_a_book_that_is_renamed_away_and_back_loses_nothing(launch: Launch, book: Path) -> None:
    trainer = Trainer(launch)
    trainer.go_on()
    wait_until(lambda: len(steps_of(book)) == 200)
    away = book.with_name("away")
    book.rename(away)

    for _ in range(3):
        trainer.go_on()
    lines = trainer.go_on("save")
    assert not book.exists()
    away.rename(book)
    err = trainer.end()

    assert {"checkpoint None", "figure None"} <= set(lines)
    assert steps_of(book) == list(range(1000))
    assert statuses(book) == ["finished"]
    assert "was not saved" in err


def test_a_book_that_is_removed_for_good_does_not_stop_training_and_the_end_says_what_is_lost(
    launch: Launch, book: Path
) -> None:
    trainer = Trainer(launch)
    trainer.go_on()
    wait_until(lambda: len(steps_of(book)) == 200)
    shutil.rmtree(book)

    for _ in range(3):
        trainer.go_on("save")
    err = trainer.end()

    assert "600 rows could not be written" in err
    assert not book.exists()


def test_a_book_that_becomes_read_only_does_not_stop_training(launch: Launch, book: Path) -> None:
    trainer = Trainer(launch)
    trainer.go_on()
    wait_until(lambda: len(steps_of(book)) == 200)
    # A second, read-only face of the same folders lies over the first. What is open stays open.
    mount = f"mount --bind {book} {book} && mount -o remount,bind,ro {book}"
    if subprocess.run(["sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        lines = trainer.go_on("save")
        err = trainer.end()
        seen, status = steps_of(book), statuses(book)
    finally:
        subprocess.run(["umount", "--lazy", str(book)], check=True)

    assert {"checkpoint None", "figure None"} <= set(lines)
    assert "was not saved" in err
    assert "the status was not written" in err
    assert seen == list(range(400))
    assert status == ["lost"]


def test_beyond_the_bound_of_memory_rows_are_counted_as_lost_and_what_is_kept_is_contiguous(
    complete: Complete, book: Path
) -> None:
    ended = complete(
        """
        run = start()
        run._writer.log.limit = 30_000
        away = os.environ["BOOK"] + ".away"
        run.log({"value": 0}, step=0)
        time.sleep(0.9)
        os.rename(os.environ["BOOK"], away)
        for step in range(1, 10_001):
            run.log({"value": step}, step=step)
            if step % 500 == 0:
                time.sleep(0.05)
        kept = run._writer.log._pending_bytes
        os.rename(away, os.environ["BOOK"])
        time.sleep(0.9)
        run.log({"value": 10_001}, step=10_001)
        run.finish()
        print(kept <= 30_000)
        """
    )

    assert ended.stdout.split() == ["True"], ended.stderr
    steps = steps_of(book)
    lost = 10_002 - len(steps)
    assert lost > 0
    assert steps[:-1] == list(range(len(steps) - 1))
    assert f"{lost:,} rows could not be written" in ended.stderr
    assert "nothing was lost" not in ended.stderr
    assert statuses(book) == ["finished"]


def test_a_book_that_cannot_be_made_is_said_in_one_line_with_a_hint(complete: Complete, book: Path) -> None:
    book.parent.mkdir()
    book.write_text("a file is in the way")

    ended = complete("start()")

    assert ended.returncode == 1
    assert "BookUnwritable" in ended.stderr
    assert "hint:" in ended.stderr


def test_starting_on_a_full_disk_is_an_error_of_ours(complete: Complete, book: Path, small_disk: Path) -> None:
    assert complete("start().finish()").returncode == 0
    fill(small_disk)

    ended = complete("start()")

    assert ended.returncode == 1
    assert "BookUnwritable" in ended.stderr
