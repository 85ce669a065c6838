"""What only grows is saved once, and several checkpoints share it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.book import checkpoints
from rollbook.book.checkpoints import load_checkpoint, save_checkpoint
from rollbook.book.growing import GrowingRows
from rollbook.errors import CorruptFile, UsageError


def rows(first: int, end: int, most_at_once: int = 1 << 20) -> GrowingRows:
    """Row n holds n and its square."""

    def read(first: int, end: int) -> dict[str, Any]:
        numbers = np.arange(first, end)
        return {"number": numbers, "square": (numbers**2).astype(np.float32)}

    return GrowingRows(first, end, read, most_at_once)


def save(run: Path, step: int, growing: dict[str, GrowingRows], after: int | None = None, keep: int | None = 3) -> None:
    save_checkpoint(
        run, step, {"w": np.zeros(2)}, extra=None, attempt=0, rows=0, time=float(step), next_step=step, keep=keep,
        growing=growing, after=after,
    )  # fmt: skip


def chunks(run: Path) -> list[str]:
    names = [path.name.rpartition("-")[0] for path in run.glob("checkpoints/growing/*")]
    return sorted(names, key=lambda name: [int(part) for part in name.split("-")[1:]])


def numbers(run: Path, step: int) -> list[int]:
    saved = load_checkpoint(run, step).growing["replay"]
    found = []
    for first, columns in saved:
        assert columns["number"][0] == first
        np.testing.assert_array_equal(columns["square"], columns["number"].astype(np.float32) ** 2)
        found += columns["number"].tolist()
    assert found == list(range(saved.first, saved.end))
    return found


def test_a_checkpoint_writes_only_what_the_one_before_does_not_have(tmp_path: Path) -> None:
    save(tmp_path, 10, {"replay": rows(0, 10)})
    save(tmp_path, 20, {"replay": rows(0, 20)}, after=10)
    save(tmp_path, 30, {"replay": rows(12, 30)}, after=20)

    assert chunks(tmp_path) == ["replay-0-10", "replay-10-20", "replay-20-30"]
    assert numbers(tmp_path, 10) == list(range(10))
    assert numbers(tmp_path, 30) == list(range(12, 30))


def test_a_chunk_goes_with_the_last_checkpoint_that_names_it(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40, 50):
        save(tmp_path, step, {"replay": rows(max(step - 15, 0), step)}, after=step - 10, keep=2)

    # 40 has the rows from 25 on, which begin in the chunk of 20 to 30.
    assert chunks(tmp_path) == ["replay-20-30", "replay-30-40", "replay-40-50"]
    assert numbers(tmp_path, 40) == list(range(25, 40))
    assert numbers(tmp_path, 50) == list(range(35, 50))


def test_another_way_from_an_older_checkpoint_shares_only_what_it_has(tmp_path: Path) -> None:
    """Going back from 30 to 10: the rows from 10 on are others, though their numbers are the same."""
    save(tmp_path, 10, {"replay": rows(0, 10)})
    save(tmp_path, 30, {"replay": rows(0, 30)}, after=10)
    save(tmp_path, 20, {"replay": rows(0, 20)}, after=10)

    assert chunks(tmp_path) == ["replay-0-10", "replay-10-20", "replay-10-30"]
    assert numbers(tmp_path, 20) == list(range(20))


def test_rows_that_were_numbered_anew_share_nothing_with_those_before(tmp_path: Path) -> None:
    save(tmp_path, 10, {"replay": rows(0, 10)})
    anew = dataclasses.replace(rows(0, 20), origin="5e1f")
    save(tmp_path, 20, {"replay": anew}, after=10)
    save(tmp_path, 30, {"replay": dataclasses.replace(rows(0, 30), origin="5e1f")}, after=20)

    assert chunks(tmp_path) == ["replay-0-10", "replay-0-20", "replay-20-30"]
    assert load_checkpoint(tmp_path, 30).growing["replay"].origin == "5e1f"


def test_without_an_older_checkpoint_everything_is_written(tmp_path: Path) -> None:
    save(tmp_path, 10, {"replay": rows(0, 10)})
    save(tmp_path, 20, {"replay": rows(5, 20)})

    assert chunks(tmp_path) == ["replay-0-10", "replay-5-20"]


def test_a_chunk_that_is_gone_is_written_again(tmp_path: Path) -> None:
    save(tmp_path, 10, {"replay": rows(0, 10)})
    next(tmp_path.glob("checkpoints/growing/*")).unlink()
    save(tmp_path, 20, {"replay": rows(0, 20)}, after=10)

    assert numbers(tmp_path, 20) == list(range(20))


def test_large_rows_are_split_into_chunks_that_fit_into_memory(tmp_path: Path) -> None:
    save(tmp_path, 10, {"replay": rows(3, 10, most_at_once=3)})

    assert chunks(tmp_path) == ["replay-3-6", "replay-6-9", "replay-9-10"]
    assert numbers(tmp_path, 10) == list(range(3, 10))


def test_a_full_disk_leaves_the_checkpoints_and_their_chunks_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 10, {"replay": rows(0, 10)})

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_write", full)
        with pytest.raises(OSError, match="No space left"):
            save(tmp_path, 20, {"replay": rows(0, 20)}, after=10)

    assert numbers(tmp_path, 10) == list(range(10))
    save(tmp_path, 20, {"replay": rows(0, 20)}, after=10)
    # What the failed save had written is named by nobody, and gone.
    assert chunks(tmp_path) == ["replay-0-10", "replay-10-20"]


def test_a_damaged_chunk_is_named_when_it_is_read_and_costs_nothing_else(tmp_path: Path) -> None:
    save(tmp_path, 10, {"replay": rows(0, 10)})
    path = next(tmp_path.glob("checkpoints/growing/*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")

    loaded = load_checkpoint(tmp_path)

    assert loaded.tensors["w"].tolist() == [0, 0]
    with pytest.raises(CorruptFile, match=path.name):
        list(loaded.growing["replay"])
    path.unlink()
    with pytest.raises(CorruptFile, match="cannot read"):
        list(loaded.growing["replay"])


def test_names_are_plain(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rows cannot be called"):
        save(tmp_path, 10, {"../replay": rows(0, 10)})
