"""64 processes write one book at once while others ask it: no lock, no error, nothing lost, nothing twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from children import Launch, wait_ready

import rollbook

WRITERS, ROWS, READERS = 64, 300, 2

# What is heavy is loaded once; the writers are forked from there, and begin together.
WRITES = """
    import warnings
    import numpy as np, pyarrow as pa, pyarrow.parquet
    import rollbook.book.checkpoints, rollbook.book.provenance, rollbook.book.sealed, rollbook.track.start
    pa.array([1])
    warnings.simplefilter("ignore")
    gate_out, gate_in = os.pipe()
    children = {}
    for number in map(int, sys.argv[1:]):
        pid = os.fork()
        if pid == 0:
            break
        children[pid] = number
    else:
        os.close(gate_in)  # the writers see the end of the pipe
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        sys.exit(any(codes))
    os.close(gate_in)
    os.read(gate_out, 1)
    run = start(config={"algo": f"algo{number % 4}", "env": "env", "seed": number}, tags=["all"])
    for step in range(300):
        run.log({"eval/return": number + step / 1000, "losses/critic": float(step)}, step=step)
        if step % 100 == 50:
            run.checkpoint(step, {"weights": np.full(100, number)}, keep=2)
            run.tag(f"writer-{number}-{step}")
            time.sleep(0.05)
    run.finish()
    os.write(1, f"{run.id}\\n".encode())
"""

ASKS = """
    book = rollbook.open(os.environ["BOOK"])
    ready()
    asked = most = 0
    while not os.path.exists(sys.argv[1]):
        counts = book.sql("select count(*) from runs").fetchall()
        points = book.sql("select run_id, name, count(*), count(distinct step) from metrics group by all").fetchall()
        assert all(times == steps for _, _, times, steps in points), "a row is there twice"
        book.sql("select * from summaries").fetchall()
        book.sql("select tag, count(*) from tags group by tag").fetchall()
        try:
            book.top(3, metric="eval/return", over="seed")
        except rollbook.RollbookError as error:
            assert "no run" in str(error), error  # nothing has been logged yet
        total = sum(times for _, _, times, _ in points)
        assert total >= most, "rows have gone"
        asked, most = asked + 1, total
    print("asked", asked)
"""


def write_while_others_ask(launch: Launch, book: Path, over: Path, groups: list[range]) -> None:
    rollbook.start("first", book=book, save_code=False).finish()
    readers = [launch(ASKS, over) for _ in range(READERS)]
    for reader in readers:
        wait_ready(reader)

    writers = [launch(WRITES, *group) for group in groups]
    ended = [writer.communicate(timeout=300) for writer in writers]
    over.touch()
    answers = [reader.communicate(timeout=60) for reader in readers]

    assert [err for _, err in ended if err] == []
    assert [writer.returncode for writer in writers] == [0] * len(writers)
    assert [(reader.returncode, err) for reader, (_, err) in zip(readers, answers, strict=True)] == [(0, "")] * READERS
    assert all(int(out.split()[-1]) > 0 for out, _ in answers)
    check_that_all_is_there(book, {run_id for out, _ in ended for run_id in out.split()})


def test_64_writers_and_2_readers_lose_nothing_and_meet_no_error(launch: Launch, book: Path, tmp_path: Path) -> None:
    write_while_others_ask(launch, book, tmp_path / "over", [range(WRITERS)])


@pytest.mark.slow
def test_64_programs_on_their_own_and_2_readers_lose_nothing(launch: Launch, book: Path, tmp_path: Path) -> None:
    write_while_others_ask(launch, book, tmp_path / "over", [range(n, n + 1) for n in range(WRITERS)])


def check_that_all_is_there(book: Path, run_ids: set[str]) -> None:
    opened = rollbook.open(book)
    runs = [run for run in opened.runs() if run.task == "task"]
    assert {run.run_id for run in runs} == run_ids
    assert len(run_ids) == WRITERS
    assert {run.status for run in runs} == {"finished"}
    points = opened.sql(
        "select count(*), count(distinct (run_id, name, step)), sum(value) from metrics where name = 'losses/critic'"
    ).fetchall()
    assert points == [(WRITERS * ROWS, WRITERS * ROWS, WRITERS * sum(range(ROWS)))]
    figures = opened.sql("select count(*), min(count), max(count) from summaries where name = 'eval/return'").fetchall()
    assert figures == [(WRITERS, ROWS, ROWS)]
    for run in runs:
        own = {f"writer-{run.seed}-{step}" for step in (50, 150, 250)}
        assert set(run.tags) == own | {"all"}
        assert [checkpoint.step for checkpoint in run.checkpoints()] == [150, 250]
        assert (run.load_checkpoint().tensors["weights"] == run.seed).all()
    entries = sorted((book / "journal").iterdir())
    assert [entry.name for entry in entries] == [f"{number:010d}.json" for number in range(1, 3 * WRITERS + 1)]
    assert {json.loads(entry.read_text())["kind"] for entry in entries} == {"tag"}
    assert opened.problems() == []
