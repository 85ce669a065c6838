"""gate: is the candidate worse than the baseline? As users ask it."""

from __future__ import annotations

import json
import math
import os

import pytest
from gate_books import GOOD, SAME, STEPS, WORSE, version
from makers import finished

import rollbook


@pytest.fixture
def two_versions(book):
    version(book, "latest", {"A-v1": GOOD, "B-v1": GOOD})
    version(book, "pr-7", {"A-v1": SAME, "B-v1": WORSE})
    return book


def outcomes(answer):
    return {cell["env"]: cell["outcome"] for cell in answer.json["cells"]}


def test_a_drop_in_one_environment_is_a_regression_and_exit_code_1(cli, two_versions):
    answer = cli("gate", "pr-7", "--against", "latest", "--margin", "10", "--json")

    assert answer.code == 1
    assert answer.json["outcome"] == "regression" and answer.json["exit_code"] == 1
    assert outcomes(answer) == {"A-v1": "equivalent", "B-v1": "regression"}


def test_an_unchanged_agent_passes_with_exit_code_0(cli, two_versions):
    answer = cli("gate", "pr-7", "--env-ids", "A-v1", "--margin", "10")

    assert answer.code == 0
    assert answer.out.splitlines()[0] == "equivalent: pr-7 against latest: inside the margin"


def test_the_table_names_cells_by_what_tells_them_apart(cli, two_versions):
    lines = cli("gate", "pr-7", "--margin", "10").out.splitlines()

    assert lines[0].startswith("regression: pr-7 against latest: B-v1: worse than the baseline")
    assert lines[2].split()[:3] == ["cell", "seeds", "baseline"]
    assert lines[3].split()[:6] == ["A-v1", "5", "/", "5", "100", "100"]
    assert lines[4].split()[-1] == "regression"


def test_too_few_seeds_for_the_margin_are_inconclusive_with_the_seeds_it_would_take(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "new", {"A-v1": [95.0, 105.0, 99.0]})

    answer = cli("gate", "new", "--margin", "1")

    assert answer.code == 3
    assert "about" in answer.out and "seeds on each side would do" in answer.out


def test_the_same_numbers_are_identical_with_one_seed(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "refactored", {"A-v1": GOOD[:1]})

    answer = cli("gate", "refactored", "--json")

    assert answer.code == 0
    assert answer.json["outcome"] == "identical"


def test_timing_does_not_make_runs_differ_but_any_other_metric_does(cli, book):
    for tag, sps, loss in (("latest", 100.0, 1.0), ("timed", 200.0, 1.0), ("other", 100.0, 1.5)):
        with rollbook.start("task", config={"algo": "ppo", "env": "A-v1", "seed": 1}, tags=[tag], book=book) as run:
            for step in STEPS:
                run.log({"charts/episodic_return": 1.0, "charts/SPS": sps, "losses/value": loss}, step=step)

    assert cli("gate", "timed", "--json").json["outcome"] == "identical"
    assert cli("gate", "other", "--json").json["outcome"] == "invalid"


def test_a_crashed_seed_is_never_dropped_silently(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "new", {"A-v1": SAME[:4]})
    version(book, "new", {"A-v1": SAME[4:]}, first_seed=5, state="failed")

    answer = cli("gate", "new", "--json")
    allowed = cli("gate", "new", "--allow-failed", "--margin", "10", "--json")

    assert answer.code == 4
    assert "seed 5 of the candidate has failed" in answer.json["cells"][0]["reason"]
    assert allowed.code == 0
    assert allowed.json["allow_failed"] and len(allowed.json["cells"][0]["left_out"]) == 1
    assert any("--allow-failed" in warning for warning in allowed.json["warnings"])


def test_a_shorter_run_is_invalid(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "new", {"A-v1": SAME}, steps=(0, 25, 47, 50))

    answer = cli("gate", "new")

    assert answer.code == 4
    assert "horizons must match" in answer.out


def test_an_environment_that_was_asked_for_and_is_missing_is_invalid(cli, two_versions):
    version(two_versions, "half", {"A-v1": SAME})

    assert cli("gate", "half", "--margin", "10").code == 0
    answer = cli("gate", "half", "--env-ids", "A-v1", "B-v1", "--margin", "10", "--json")
    assert answer.code == 4
    assert outcomes(answer) == {"A-v1": "equivalent", "B-v1": "invalid"}
    assert cli("gate", "half", "--env-ids", "A-v1", "Nowhere-v9", "--margin", "10").code == 4


def test_a_cell_that_the_baseline_lacks_is_new_and_passes(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "new", {"A-v1": SAME, "C-v1": SAME})

    answer = cli("gate", "new", "--margin", "10", "--json")

    assert answer.code == 0
    assert outcomes(answer) == {"A-v1": "equivalent", "C-v1": "new"}


@pytest.mark.parametrize("margin", ["0", "-1", "0%", "nonsense", "nan"])
def test_a_margin_that_is_not_positive_is_wrong_usage(cli, two_versions, margin):
    answer = cli("gate", "pr-7", f"--margin={margin}")

    assert answer.code == 2
    assert "--margin 10%" in answer.err


def test_a_tag_without_runs_is_named_with_the_nearest_one(cli, two_versions):
    answer = cli("gate", "pr-8")

    assert answer.code == 4
    assert answer.err == "error: no run has the tag or is of the version 'pr-8'\nhint: did you mean 'pr-7'?\n"


def test_a_metric_that_nobody_logged_is_named_with_the_nearest_one(cli, two_versions):
    answer = cli("gate", "pr-7", "--metric", "charts/episodic_retrun")

    assert answer.code == 4
    assert "did you mean 'charts/episodic_return'?" in answer.err


def test_one_seed_only_is_invalid(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "new", {"A-v1": [42.0]})

    answer = cli("gate", "new")

    assert answer.code == 4
    assert "the candidate has 1 seed, the gate needs at least 3" in answer.out


def test_a_solved_task_with_equal_scores_is_equivalent(cli, book):
    version(book, "latest", {"A-v1": [500.0] * 5})
    version(book, "new", {"A-v1": [500.0] * 5}, first_seed=11)

    assert cli("gate", "new").code == 0


def test_a_run_that_diverged_makes_its_cell_invalid(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "new", {"A-v1": [*SAME[:4], math.nan]})

    answer = cli("gate", "new")

    assert answer.code == 4
    assert "seed 5 of the candidate diverged" in answer.out


def test_a_seed_that_was_run_again_counts_once_and_is_told(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "new", {"A-v1": WORSE[:1]})
    version(book, "new", {"A-v1": SAME})

    answer = cli("gate", "new", "--margin", "10", "--json")

    assert answer.code == 0
    assert answer.json["cells"][0]["candidate_seeds"] == 5
    assert any("ran seed 1 more than once" in warning for warning in answer.json["warnings"])


def test_one_seed_with_two_configurations_is_invalid_with_the_way_to_choose(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "new", {"A-v1": SAME}, lr=0.1)
    version(book, "new", {"A-v1": SAME}, lr=0.2)

    assert cli("gate", "new").code == 4
    assert "--candidate-where" in cli("gate", "new").out
    chosen = ["--candidate-where", "config->>'lr' = '0.1' and list_contains(tags, 'new')", "--against", "latest"]
    assert cli("gate", *chosen, "--margin", "10").code == 0


def test_runs_cannot_be_compared_with_themselves(cli, two_versions):
    answer = cli("gate", "latest", "--against", "latest")

    assert answer.code == 2
    assert "of both sides" in answer.err


def test_the_first_gate_freezes_the_baseline_and_says_so(cli, two_versions):
    first = cli("gate", "pr-7", "--json")
    second = cli("gate", "pr-7", "--json")

    assert "freezing the constants of latest" in first.err
    assert second.err == ""
    assert first.out == second.out


def test_frozen_constants_do_not_move_with_the_baseline(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    assert cli("gate", "freeze", "latest", "--margin", "20", "--floor", "A-v1=10").code == 0
    version(book, "latest", {"A-v1": [200.0, 202.0, 204.0]}, first_seed=20)
    version(book, "new", {"A-v1": SAME})

    (cell,) = cli("gate", "new", "--json").json["cells"]

    assert (cell["floor"], cell["scale"], cell["margin"]) == (10.0, 90.0, 20.0)


def test_freezing_shows_what_was_frozen(cli, book):
    version(book, "latest", {"A-v1": GOOD})

    (row,) = cli("gate", "freeze", "latest", "--floor", "A-v1=-5", "--json").json

    assert (row["env"], row["reference"], row["floor"], row["seeds"], row["margin"]) == ("A-v1", 100.0, -5.0, 5, "10%")


def test_a_random_policy_is_tried_where_the_environment_is_at_hand(cli, book):
    version(book, "latest", {"CartPole-v1": [480.0, 490.0, 500.0]})

    first, second = (cli("gate", "freeze", "latest", "--json").json[0]["floor"] for _ in range(2))

    assert 15 < first < 30
    assert first == second


def test_a_margin_given_later_is_used_and_labelled(cli, two_versions):
    cli("gate", "freeze", "latest", "--margin", "10")

    answer = cli("gate", "pr-7", "--margin", "60", "--json")

    assert answer.json["margin_from"] == "chosen after the fact"
    assert any("chosen after the fact" in warning for warning in answer.json["warnings"])
    assert answer.code == 0


def test_an_anchor_catches_what_small_steps_add_up_to(cli, book):
    version(book, "v1.0", {"A-v1": [value + 20 for value in GOOD]})
    version(book, "latest", {"A-v1": GOOD})
    version(book, "new", {"A-v1": SAME})

    assert cli("gate", "new", "--margin", "10").code == 0
    answer = cli("gate", "new", "--margin", "10", "--anchor", "v1.0", "--json")
    assert answer.code == 1
    assert answer.json["anchor"]["outcome"] == "regression"
    assert "against the anchor v1.0" in answer.json["sentence"]

    (book.parent / "rollbook.toml").write_text('anchor = "v1.0"')
    assert cli("gate", "new", "--margin", "10").code == 1


def test_a_verdict_is_journalled(cli, two_versions):
    cli("gate", "pr-7")

    (row,) = rollbook.open(two_versions).rows("select verdict from verdicts")
    verdict = json.loads(row["verdict"])
    assert verdict["outcome"] == "regression"
    assert verdict["baseline"]["name"] == "latest"
    assert len(verdict["runs"]) == 10


def test_filters_of_openrlbenchmark_name_both_sides(cli, book):
    version(book, "latest", {"A-v1": GOOD}, algo=None, exp_name="ppo")
    version(book, "pr-308", {"A-v1": WORSE}, algo=None, exp_name="ppo")
    version(book, "pr-308", {"A-v1": GOOD}, algo=None, exp_name="dqn")
    filters = ["?ceik=env_id&cen=exp_name&metric=charts/episodic_return", "ppo?tag=pr-308&cl=New", "ppo?tag=latest"]

    answer = cli("gate", "--filters", *filters, "--margin", "10", "--json")
    table = cli("gate", "--filters", *filters, "--margin", "10", "--table", "--last", "2")

    assert answer.code == 1
    assert answer.json["candidate"]["name"] == "New"
    assert answer.json["candidate"]["runs"] == 5
    assert table.out.splitlines()[1].split("  ")[0] == "A-v1"
    assert "59.80 ± 2.39" in table.out and "100.00 ± 2.92" in table.out


def test_filters_of_one_side_only_are_wrong_usage(cli, two_versions):
    assert cli("gate", "--filters", "?metric=x", "ppo?tag=latest").code == 2


def test_json_text_report_and_exit_code_agree(cli, two_versions, tmp_path):
    answer = cli("gate", "pr-7", "--margin", "10", "--report", tmp_path / "report")
    plain = json.loads((tmp_path / "report" / "report.json").read_text())

    assert plain["exit_code"] == answer.code == 1
    assert answer.out.splitlines()[0] == plain["sentence"]
    page = (tmp_path / "report" / "report.html").read_text()
    assert '<span class="outcome regression">regression</span>' in page
    assert (tmp_path / "report" / "report.md").read_text().startswith("### ❌ regression: pr-7 against latest")


def test_the_same_inputs_give_the_same_bytes(cli, two_versions, tmp_path):
    cli("gate", "freeze", "latest")
    for name in ("one", "two"):
        cli("gate", "pr-7", "--report", tmp_path / name)

    names = sorted(os.listdir(tmp_path / "one"))
    assert {"report.html", "report.md", "report.json", "forest.svg", "curves.png"} <= set(names)
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_what_users_named_is_text_in_every_form_of_the_report(cli, book, tmp_path):
    evil = "<script>alert(1)</script>|*x*"
    version(book, "latest", {evil: GOOD})
    version(book, "new", {evil: SAME})

    cli("gate", "new", "--margin", "10", "--report", tmp_path / "report")

    assert "<script" not in (tmp_path / "report" / "report.html").read_text()
    assert "\\|\\*x\\*" in (tmp_path / "report" / "report.md").read_text()


def test_github_gets_the_verdict_as_a_step_summary(cli, two_versions, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    cli("gate", "pr-7", "--github")

    assert "regression" in (tmp_path / "summary.md").read_text()

    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert cli("gate", "pr-7", "--github").code == 2


def test_nothing_is_compared_when_a_run_is_still_at_work(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "new", {"A-v1": SAME})
    run = rollbook.start("task", config={"algo": "ppo", "env": "A-v1", "seed": 9}, tags=["new"], book=book)
    run.log({"charts/episodic_return": 1.0}, step=100)

    answer = cli("gate", "new", "--allow-failed")
    run.finish()

    assert answer.code == 4
    assert "seed 9 of the candidate is still running" in answer.out


def test_evaluation_returns_are_preferred_where_all_runs_have_them(cli, book):
    for tag in ("latest", "new"):
        for seed in range(3):
            with rollbook.start("t", config={"algo": "a", "env": "E", "seed": seed}, tags=[tag], book=book) as run:
                for step in STEPS:
                    run.log({"charts/episodic_return": float(seed), "eval/return": 10.0 + seed}, step=step)
    finished(book, task="t", algo="a", env="F", seed=1, tags=["new"], steps=STEPS, returns=[1, 2, 3, 4])

    cells = {cell["env"]: cell for cell in cli("gate", "new", "--json").json["cells"]}

    assert cells["E"]["metric"] == "eval/return"
    assert cells["F"]["metric"] == "charts/episodic_return"


def test_latest_moves_cell_by_cell_after_a_passing_verdict(cli, book):
    old = version(book, "latest", {"A-v1": GOOD, "B-v1": GOOD})
    new = version(book, "pr-9", {"A-v1": SAME})
    assert cli("gate", "pr-9", "--margin", "10").code == 0

    answer = cli("tag", "move", "latest", "--to", "pr-9", "--yes")

    assert answer.code == 0
    now = {run.run_id for run in rollbook.open(book).runs("list_contains(tags, 'latest')")}
    assert now == {*new, *old[5:]}


def test_moving_to_what_did_not_pass_needs_force_and_is_recorded(cli, book):
    version(book, "latest", {"A-v1": GOOD})
    version(book, "unsure", {"A-v1": [95.0, 105.0, 99.0]})
    assert cli("gate", "unsure", "--margin", "1").code == 3

    refused = cli("tag", "move", "latest", "--to", "unsure", "--yes")
    forced = cli("tag", "move", "latest", "--to", "unsure", "--yes", "--force")

    assert refused.code == 2
    assert refused.err.startswith("error: the gate found unsure inconclusive against latest\nhint: ")
    assert forced.code == 0
    (entry,) = [row for row in cli("tag", "log", "latest", "--json").json if row["forced"]]
    assert entry["forced"] == "inconclusive"
