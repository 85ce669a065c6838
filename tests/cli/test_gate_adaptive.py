"""gate --adaptive: the candidate's seeds are trained here, as few as the answer needs."""

from __future__ import annotations

from gated_project import COMMAND, commit

import rollbook


def bench(cli, seeds):
    assert cli("bench", *COMMAND, "--num-seeds", seeds, "--tags", "latest").code == 0


def gate(cli, *arguments):
    return cli("gate", *arguments, "--adaptive", *COMMAND, "--against", "latest", "--margin", "5")


def seeds_of(book, where):
    return sorted(run.seed for run in rollbook.open(book).runs(where))


def test_a_clear_drop_is_found_with_three_seeds(cli, book, git_project):
    commit(git_project, level=100)
    bench(cli, 10)
    commit(git_project, level=80)

    answer = gate(cli, "pr-9", "--json")

    assert answer.code == 1, answer.err
    assert answer.json["outcome"] == "regression"
    assert seeds_of(book, "list_contains(tags, 'pr-9')") == [1, 2, 3]
    assert [look["seeds"] for look in answer.json["adaptive"]["looks"]] == [3]
    assert seeds_of(book, "not list_contains(tags, 'latest')") == [1, 2, 3]
    assert "3 seeds: regression, 0 cells undecided, alpha spent 0.0115 of 0.05" in answer.err


def test_the_same_command_again_runs_nothing_and_says_the_same(cli, book, git_project):
    commit(git_project, level=100)
    bench(cli, 10)
    commit(git_project, level=100.5)

    first, second = gate(cli, "--json"), gate(cli, "--json")

    assert first.code == second.code == 0
    assert first.out == second.out
    assert len(rollbook.open(book).runs()) == 10 + first.json["cells"][0]["candidate_seeds"]


def test_further_seeds_run_only_while_nothing_is_decided(cli, book, git_project):
    commit(git_project, level=100, spread=6)
    bench(cli, 10)
    commit(git_project, level=98.5, spread=6)

    answer = gate(cli, "--json")

    looks = answer.json["adaptive"]["looks"]
    assert len(looks) > 1
    assert [look["outcome"] for look in looks[:-1]] == ["inconclusive"] * (len(looks) - 1)
    assert answer.json["cells"][0]["candidate_seeds"] == looks[-1]["seeds"]
    assert [look["spent"] for look in looks] == sorted(look["spent"] for look in looks)


def test_the_baseline_is_topped_up_to_ten_seeds_from_its_own_commit(cli, book, git_project):
    commit(git_project, level=100)
    bench(cli, 4)
    commit(git_project, level=80)

    answer = gate(cli, "--json")

    assert answer.code == 1, answer.err
    assert seeds_of(book, "list_contains(tags, 'latest')") == list(range(1, 11))
    (cell,) = answer.json["cells"]
    assert cell["baseline_seeds"] == 10
    assert abs(cell["baseline_mean"] - 100) < 1
    assert len({run["version"] for run in cell["baseline_runs"]}) == 1


def test_a_job_that_fails_leaves_the_gate_open_and_the_same_command_goes_on(cli, book, git_project):
    commit(git_project, level=100)
    bench(cli, 10)
    commit(git_project, level=80)
    (git_project / "crash").touch()

    broken = gate(cli)
    (git_project / "crash").unlink()

    assert broken.code == 1
    assert broken.err.splitlines()[-2:] == [
        "error: the gate is not decided: 3 of 3 jobs failed",
        "hint: the same command goes on with it",
    ]
    assert gate(cli, "--json").json["outcome"] == "regression"


def test_a_program_without_adaptive_is_wrong_usage(cli, git_project):
    assert cli("gate", "new", "--command", "python agent.py").code == 2
