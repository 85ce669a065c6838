"""plot: curves over seeds, in files and in the terminal."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from makers import RETURN, finished

import rollbook


def learned(book, *, points: int = 40, last: int = 1_000_000, end: float = 2000.0, **about) -> str:
    """A run that rises to about `end`."""
    rng = np.random.default_rng(about.get("seed", 0))
    steps = np.linspace(0, last, points).astype(int).tolist()
    values = [end * step / last + rng.normal(0, 10) for step in steps]
    return finished(book, returns=values, steps=steps, **about)


@pytest.fixture
def three_seeds(book):
    return [learned(book, seed=seed) for seed in (1, 2, 3)]


def texts(path) -> set[str]:
    return {"".join(one.itertext()).strip() for one in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")}


# ---- what is drawn


def test_without_a_file_the_terminal_shows_the_curve(cli, three_seeds):
    answer = cli("plot")

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("Hopper-v5: charts/episodic_return over steps\n")
    assert "(3 runs)" in answer.out
    assert any("⠀" < char <= "⣿" for char in answer.out)
    assert "\x1b" not in answer.out


def test_json_has_the_folded_curves(book, cli, three_seeds):
    (row,) = cli("plot", "--json", "--smooth", 0, "--points", 40).json

    assert (row["env"], row["group"], row["metric"], row["over"]) == ("Hopper-v5", "sac", RETURN, "steps")
    assert row["seeds"] == [1, 2, 3]
    assert row["run_ids"] == three_seeds
    opened = rollbook.open(book)
    each = [opened.run(run_id).metrics(RETURN)["value"].to_numpy() for run_id in three_seeds]
    assert row["x"] == pytest.approx(opened.run(three_seeds[0]).metrics(RETURN)["step"].to_pylist(), abs=1)
    assert row["center"] == pytest.approx(np.mean(each, axis=0), abs=1)
    assert len(row["each"]) == 3
    assert all(low < center < high for low, center, high in zip(row["low"], row["center"], row["high"], strict=True))


def test_pictures_are_written_in_every_format_and_named_on_stdout(cli, three_seeds, tmp_path):
    answer = cli("plot", "--out", "a.png", "b.svg", "--out", "c.pdf", "--title", "Three seeds")

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == ["a.png", "b.svg", "c.pdf"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "c.pdf").read_bytes().startswith(b"%PDF")
    assert {"Three seeds", "Hopper-v5", "sac", RETURN, "environment steps"} <= texts(tmp_path / "b.svg")


def test_the_same_command_writes_the_same_bytes(cli, three_seeds, tmp_path):
    cli("plot", "--statistic", "iqm", "--out", "a.svg", "a.pdf")
    cli("plot", "--statistic", "iqm", "--out", "b.svg", "b.pdf")

    for ending in ("svg", "pdf"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_json_and_a_file_at_once(cli, three_seeds, tmp_path):
    answer = cli("plot", "--json", "--out", "a.svg")

    assert len(answer.json) == 1
    assert answer.err == "a.svg\n"
    assert (tmp_path / "a.svg").exists()


def test_a_mean_ends_where_the_first_run_ends_and_says_so(book, cli):
    learned(book, seed=1)
    short = learned(book, seed=2, last=400_000)

    answer = cli("plot", "--json")

    (row,) = answer.json
    reached = [x for x, center in zip(row["x"], row["center"], strict=True) if center is not None]
    assert (reached[0], reached[-1], row["x"][-1]) == (0, 400_000, 1_000_000)
    assert answer.err == f"sac on Hopper-v5: the mean ends at 400k of 1M, with run {short}\n"


def test_curves_can_be_drawn_over_time(cli, three_seeds):
    (row,) = cli("plot", "--over", "time", "--json").json

    assert row["over"] == "time"
    assert 0 <= row["x"][0] < row["x"][-1] < 60
    assert "over wall time" in cli("plot", "--over", "time").out


def test_smoothing_and_statistic_are_taken(cli, three_seeds):
    (raw,) = cli("plot", "--json", "--smooth", 0).json
    (smooth,) = cli("plot", "--json", "--smooth", 0.5, "--statistic", "iqm").json

    assert np.std(np.diff(smooth["center"])) < np.std(np.diff(raw["center"]))
    assert smooth["statistic"] == "iqm"


# ---- which runs


def test_runs_are_chosen_by_id_sql_regex_task_tag_algorithm_and_environment(book, cli):
    first = learned(book, seed=1, task="a", algo="sac", env="Hopper-v5", tags=["x"])
    second = learned(book, seed=2, task="a", algo="td3", env="Ant-v5", tags=["y"])
    third = learned(book, seed=3, task="b", algo="td3", env="Hopper-v5")

    def chosen(*arguments) -> set[str]:
        return {run_id for row in cli("plot", *arguments, "--json").json for run_id in row["run_ids"]}

    assert chosen() == {first, second, third}
    assert chosen(first, third) == {first, third}
    assert chosen("--where", "seed > 1") == {second, third}
    assert chosen("--regex", "Ant") == {second}
    assert chosen("--task", "b") == {third}
    assert chosen("--tag", "x", "y") == {first, second}
    assert chosen("--algo", "td3") == {second, third}
    assert chosen("--env-ids", "Ant-v5", "Hopper-v5", "--algo", "sac", "--algo", "td3") == {first, second, third}
    assert chosen("--env-ids", "Hopper-v5", "--algo", "td3") == {third}


def test_newest_leaves_older_benchmarks_out(book, cli):
    learned(book, seed=1, benchmark="old")
    new = learned(book, seed=1, benchmark="new")

    (both,), (one,) = cli("plot", "--json").json, cli("plot", "--newest", "--json").json

    assert len(both["run_ids"]) == 2
    assert one["run_ids"] == [new]


def test_the_metric_is_eval_return_where_all_runs_have_it(book, cli):
    learned(book, seed=1, metric="eval/return")
    assert cli("plot", "--json").json[0]["metric"] == "eval/return"

    learned(book, seed=2)
    answer = cli("plot", "--json")
    assert [row["metric"] for row in answer.json] == [RETURN]
    assert answer.err.startswith(f"without a finite {RETURN}: run ")


def test_several_tags_are_compared(book, cli):
    for tag, end in (("latest", 1000.0), ("pr-308", 2000.0)):
        for seed in (1, 2):
            learned(book, seed=seed, end=end, tags=[tag])

    rows = cli("plot", "--tag", "latest", "--tag", "pr-308", "--json").json

    assert [(row["group"], len(row["run_ids"])) for row in rows] == [("latest", 2), ("pr-308", 2)]


def test_lines_can_be_made_by_any_parameter(book, cli):
    for size in (64, 256):
        for seed in (1, 2):
            learned(book, seed=seed, net={"size": size})

    rows = cli("plot", "--group-by", "net.size,seed", "--json").json

    assert [row["group"] for row in rows] == [f"net.size={size} seed={seed}" for size in (64, 256) for seed in (1, 2)]
    assert [row["group"] for row in cli("plot", "--json").json] == ["net.size=64", "net.size=256"]


# ---- what is said


def test_runs_that_failed_or_diverged_are_drawn_and_named(book, cli):
    failed = learned(book, seed=1, state="failed")
    diverged = finished(book, seed=2, returns=[1.0, 2.0, float("inf"), 4.0], steps=[0, 10, 20, 1_000_000])

    answer = cli("plot", "--json")

    assert answer.code == 0
    assert answer.json[0]["run_ids"] == [failed, diverged]
    assert answer.err.splitlines() == [
        f"failed, drawn as far as it got: run {failed}",
        f"diverged, finite values drawn: run {diverged}",
    ]


def test_many_remarks_are_cut(book, cli):
    for number in range(6):
        learned(book, env=f"e{number}", seed=1)
        learned(book, env=f"e{number}", seed=2, last=1000)

    assert cli("plot", "--json").err.splitlines()[-1] == "and 3 more of this kind"


# ---- published scores


def test_published_scores_are_drawn_beside_ours_with_their_version(cli, three_seeds, tmp_path):
    answer = cli("plot", "--published", "--out", "a.svg")

    assert answer.code == 0
    assert {"CleanRL 2,310 on v4", "Tianshou best 3,542 on v3", "Spinning Up 3,535 on v3"} <= texts(tmp_path / "a.svg")
    assert "CleanRL: mean and std over 3 seeds" in answer.err
    assert "https://docs.cleanrl.dev" in answer.err


def test_where_no_published_score_fits_that_is_said(book, cli):
    learned(book, seed=1, last=5_000)

    answer = cli("plot", "--published", "--json")

    assert answer.json[0]["references"] == []
    assert answer.err.splitlines() == [
        "no published score fits",
        "published scores of sac on Hopper-v5 are at 100k, 200k, 300k, 1M and 3M steps, the runs have 5k",
    ]


def test_published_scores_are_of_returns_only(book, cli):
    learned(book, seed=1, metric="losses/critic")

    answer = cli("plot", "--published", "--metric", "losses/critic")

    assert answer.code == 0
    assert "published scores are returns" in answer.err


# ---- errors


@pytest.mark.parametrize(
    ("arguments", "code", "error", "hint"),
    [
        (
            ["--metric", "charts/episodic_retrun"],
            4,
            "no run logged the metric",
            "did you mean 'charts/episodic_return'?",
        ),
        (["--group-by", "learning_rat"], 2, "neither a column nor a parameter", "did you mean 'learning_rate'?"),
        (["--algo", "sacc"], 4, "no run matches the algorithm 'sacc'", "did you mean 'sac'?"),
        (["--env-ids", "Hoper-v5"], 4, "no run matches the environment", "did you mean 'Hopper-v5'?"),
        (["--tag", "latest"], 4, "no run matches the tag 'latest'", "`rollbook runs` lists them"),
        (["--where", "alog = 'x'"], 2, "there is no column 'alog'", "did you mean 'algo'?"),
        (["--out", "a.sgv"], 2, "pictures are written as png, svg, pdf", "did you mean 'svg'?"),
        (["--out", "a"], 2, "pictures are written as png, svg, pdf", "--out a.png"),
        (["--out", "no/a.png"], 2, "there is no folder no", "mkdir -p no"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_say_what_is_wrong_and_how_to_mend_it(book, cli, arguments, code, error, hint):
    learned(book, seed=1, learning_rate=1)

    answer = cli("plot", *arguments)

    assert (answer.code, answer.out) == (code, "")
    first, second = answer.err.splitlines()
    assert error in first
    assert second == f"hint: {hint}"


def test_one_point_makes_no_curve(book, cli):
    finished(book, returns=[1.0])

    answer = cli("plot")

    assert answer.code == 4
    assert answer.err.splitlines() == [
        f"error: each run has one point of '{RETURN}', which makes no curve",
        f"hint: `rollbook runs --metric {RETURN}` lists them",
    ]


def test_nothing_but_nan_makes_no_curve(book, cli):
    finished(book, returns=[float("nan"), float("nan")])

    answer = cli("plot")

    assert answer.code == 4
    assert answer.err.startswith(f"error: '{RETURN}' has no finite value in these runs\nhint: ")


def test_a_file_that_cannot_be_written_is_an_error(book, cli, tmp_path):
    learned(book, seed=1)
    (tmp_path / "a.png").mkdir()

    answer = cli("plot", "--out", "a.png")

    assert answer.code == 2
    assert answer.err == "error: a.png is a folder\nhint: --out FILE.png\n"
