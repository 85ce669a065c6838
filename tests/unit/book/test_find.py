"""Finding one run by what a user types."""

from __future__ import annotations

import pytest
from makers import finished

import rollbook
from rollbook.book.find import find_run_folder, match_ids, match_names, one_of
from rollbook.book.layout import Layout
from rollbook.errors import AmbiguousRun, RunNotFound

IDS = ["20261115-184917-lab3-9f2c", "20261115-184917-lab3-41d0", "20261201-000000-lab4-9f2c1"]
NAMES = {
    IDS[0]: f"{IDS[0]}&algo=sac&env=Hopper-v5&lr=0.0003",
    IDS[1]: f"{IDS[1]}&algo=td3&env=Hopper-v5&lr=0.001",
    IDS[2]: f"{IDS[2]}&algo=sac&env=Ant-v5",
}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        (IDS[0], [IDS[0]]),
        (NAMES[IDS[1]], [IDS[1]]),
        ("20261201", [IDS[2]]),
        ("9f2c", [IDS[0]]),
        ("lab3-41d0", [IDS[1]]),
        ("20261115", IDS[:2]),
        ("f2c", []),
        ("", []),
    ],
)
def test_an_id_is_found_by_its_beginning_or_its_last_part(reference, found):
    assert match_ids(reference, IDS) == found


@pytest.mark.parametrize(
    ("reference", "found"),
    [("algo=td3", [IDS[1]]), (r"sac.*lr=0\.0003", [IDS[0]]), ("Hopper", IDS[:2]), ("(", []), ("", [])],
)
def test_a_name_is_found_by_a_regular_expression(reference, found):
    assert match_names(reference, NAMES) == found


def test_several_candidates_are_listed():
    with pytest.raises(AmbiguousRun) as error:
        one_of("2026", IDS, IDS)

    assert error.value.message == f"'2026' matches 3 runs: {', '.join(sorted(IDS))}"
    assert error.value.hint == "give more of the id"


def test_of_very_many_candidates_some_are_listed():
    many = [f"run-{number:03}" for number in range(100)]

    with pytest.raises(AmbiguousRun, match=r"matches 100 runs: run-000, .* and 92 more"):
        one_of("run", many, many)


def test_a_mistyped_id_gets_the_nearest_as_a_hint():
    with pytest.raises(RunNotFound) as error:
        one_of("20261115-184917-lab3-9f2d", [], IDS)

    assert IDS[0] in error.value.hint


def test_what_is_near_nothing_gets_the_list_as_a_hint():
    with pytest.raises(RunNotFound, match="no run matches 'xyz'") as error:
        one_of("xyz", [], IDS)

    assert "rollbook runs" in error.value.hint


def test_the_book_and_the_folders_find_the_same_run(book):
    sac = finished(book, algo="sac")
    td3 = finished(book, algo="td3")
    opened, layout = rollbook.open(book), Layout(book)

    for reference in (td3, td3.split("-")[-1], "algo=td3", f"{td3}&whatever=else"):
        assert opened.run(reference).run_id == td3
        assert find_run_folder(layout, reference).name == td3
    with pytest.raises(AmbiguousRun):
        opened.run("Hopper")
    with pytest.raises(AmbiguousRun):
        find_run_folder(layout, "Hopper")
    assert sac != td3


def test_a_folder_that_is_no_run_yet_does_not_disturb(book):
    run = finished(book)
    (book / "tasks" / "task" / "20261115-184917-lab3-9f2c").mkdir()

    assert find_run_folder(Layout(book), "algo=sac").name == run
