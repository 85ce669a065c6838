"""What is compared: the runs of two sides, cell by cell, and the score of each.

A score is the mean return over the last 10% of a run's steps. Nothing is dropped silently: a seed that crashed, stopped
short or diverged makes its cell invalid, unless the user says otherwise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rollbook.book.top import DEFAULT_METRICS
from rollbook.errors import MetricNotFound, RunNotFound, UsageError, did_you_mean

if TYPE_CHECKING:
    from rollbook.book.book import Book

_SAME_HORIZON = 0.05  # programs that log at the end of an episode end a little before or after each other


@dataclass(frozen=True)
class Cell:
    """What is judged by itself."""

    task: str
    algo: str | None
    env: str | None

    def __str__(self) -> str:
        return " ".join(part for part in (self.task, self.algo, self.env) if part)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The runs of a side: a name for them, and the condition on the view `runs` that they fulfil."""

    name: str
    where: str
    tag: str | None = None  # if that is what they were chosen by


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one metric of a run."""

    final: float | None
    auc: float | None
    diverged: bool


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    run_id: str
    seed: int | None
    status: str
    last_step: int | None
    duration_s: float
    version: str | None
    config_key: str
    figures: Mapping[str, Figures] = field(default_factory=dict)

    def score(self, metric: str) -> float | None:
        one = self.figures.get(metric)
        return None if one is None or one.diverged else one.final

    def __str__(self) -> str:
        return f"run {self.run_id}" if self.seed is None else f"seed {self.seed}"


Side = Mapping[Cell, Sequence[ScoredRun]]


def read_side(book: Book, choice: Choice, metric: str | None, *, only: str = "true") -> dict[Cell, list[ScoredRun]]:
    """The runs of a side by cell, seeds in order. `only` is a further condition, as --algo and --env-ids give it."""
    rows = book.rows(
        f"""
        with chosen as (select * from runs where ({choice.where}\n) and ({only}))
        select c.run_id, c.task, c.algo, c.env, c.seed, c.status, c.last_step, c.duration_s, c.git_describe,
            c.config_key, s.name, s.final, s.auc, s.diverged
        from chosen c left join summaries s on c.run_id = s.run_id and list_contains(?, s.name)
        order by c.task, c.algo, c.env, c.seed, c.started_at, c.run_id, s.name
        """,
        [[metric] if metric else list(DEFAULT_METRICS)],
    )
    side: dict[Cell, list[ScoredRun]] = defaultdict(list)
    for of_run in _by_run(rows):
        first = of_run[0]
        figures = {
            row["name"]: Figures(final=row["final"], auc=row["auc"], diverged=row["diverged"])
            for row in of_run
            if row["name"] is not None
        }
        run = ScoredRun(
            run_id=first["run_id"],
            seed=first["seed"],
            status=first["status"],
            last_step=first["last_step"],
            duration_s=first["duration_s"],
            version=first["git_describe"],
            config_key=first["config_key"],
            figures=figures,
        )
        side[Cell(first["task"], first["algo"], first["env"])].append(run)
    return dict(side)


def _by_run(rows: Iterable[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["run_id"], []).append(row)
    return found.values()


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A cell of both sides: the runs that count, what is wrong with them, and what a reader should know."""

    cell: Cell
    metric: str
    candidate: tuple[ScoredRun, ...]
    baseline: tuple[ScoredRun, ...]
    problem: str | None = None
    warnings: tuple[str, ...] = ()
    left_out: tuple[ScoredRun, ...] = ()  # as the user allowed

    def scores(self, runs: Sequence[ScoredRun]) -> list[float]:
        """NaN for a run without one: the gate takes that as an invalid cell."""
        return [float("nan") if (score := run.score(self.metric)) is None else score for run in runs]


def short_names(cells: Collection[Cell]) -> dict[Cell, str]:
    """By what tells them apart: of one task and one algorithm, the environment alone."""
    parts = [part for part in ("task", "algo", "env") if len({getattr(cell, part) for cell in cells}) > 1] or ["env"]
    return {cell: " ".join(getattr(cell, part) or "-" for part in parts) for cell in cells}


def pair_up(
    candidate: Side, baseline: Side, *, metric: str | None, asked_for: Collection[Cell] = (), allow_failed: bool = False
) -> list[Pair]:
    """The candidate's cells, and those that were asked for by name."""
    both = {run.run_id for runs in candidate.values() for run in runs} & {
        run.run_id for runs in baseline.values() for run in runs
    }
    if both:
        raise UsageError(
            f"{len(both)} {'run is' if len(both) == 1 else 'runs are'} of both sides, among them {min(both)}",
            "compare runs with others: name another tag, or tell them apart with --candidate-where and --against-where",
        )
    cells = sorted({*candidate, *asked_for}, key=str)
    return [_pair(cell, candidate.get(cell, ()), baseline.get(cell, ()), metric, allow_failed) for cell in cells]


def _pair(
    cell: Cell, ours: Sequence[ScoredRun], theirs: Sequence[ScoredRun], metric: str | None, allow_failed: bool
) -> Pair:
    chosen = metric or _usual_metric([*ours, *theirs])
    if not ours:
        problem = "the candidate has no runs of it"
        return Pair(cell=cell, metric=chosen, candidate=(), baseline=tuple(theirs), problem=problem)
    candidate = _sift("candidate", "--candidate-where", ours, chosen, allow_failed)
    baseline = _sift("baseline", "--against-where", theirs, chosen, allow_failed)
    problems = [*candidate.problems, *baseline.problems]
    if not problems and (uneven := _uneven([*candidate.runs, *baseline.runs])):
        problems.append(uneven)
    return Pair(
        cell=cell,
        metric=chosen,
        candidate=tuple(candidate.runs),
        baseline=tuple(baseline.runs),
        problem=_joined(problems),
        warnings=(*candidate.warnings, *baseline.warnings),
        left_out=(*candidate.left_out, *baseline.left_out),
    )


@dataclass(frozen=True, kw_only=True)
class _Sifted:
    """A side of a cell, as far as it can be judged."""

    runs: list[ScoredRun]
    left_out: list[ScoredRun]
    problems: list[str]
    warnings: list[str]


def _sift(who: str, option: str, runs: Sequence[ScoredRun], metric: str, allow_failed: bool) -> _Sifted:
    newest, repeated = _newest_of_each_seed(runs)
    useless = [(run, why) for run in newest if (why := _useless(run, metric))]
    may_go = allow_failed and all(run.status != "running" for run, _ in useless)
    problems = [] if may_go else [f"{run} of the {who} {why}" for run, why in useless]
    left_out = [run for run, _ in useless] if may_go else []
    kept = [run for run in newest if run not in left_out]
    if (seed := _seed_with_two_configs(runs)) is not None:
        problems.append(f"the {who} has seed {seed} with different configurations: choose one with {option}")
    warnings = []
    if repeated:
        warnings.append(f"the {who} ran seed {', '.join(map(str, repeated))} more than once: the newest run counts")
    if len({run.config_key for run in kept}) > 1:
        warnings.append(f"the runs of the {who} differ in more than the seed")
    return _Sifted(runs=kept, left_out=left_out, problems=problems, warnings=warnings)


def _usual_metric(runs: Collection[ScoredRun]) -> str:
    """The first of the usual ones that all runs logged, or else that any did."""
    logged = Counter(name for run in runs for name in run.figures)
    for least in (len(runs), 1):
        for name in DEFAULT_METRICS:
            if logged[name] >= least:
                return name
    return DEFAULT_METRICS[-1]


def _newest_of_each_seed(runs: Sequence[ScoredRun]) -> tuple[list[ScoredRun], list[int]]:
    newest = {run.run_id if run.seed is None else run.seed: run for run in runs}  # the later ones come later
    times = Counter(run.seed for run in runs if run.seed is not None)
    return list(newest.values()), sorted(seed for seed, count in times.items() if count > 1)


def _seed_with_two_configs(runs: Sequence[ScoredRun]) -> int | None:
    keys: dict[int, set[str]] = defaultdict(set)
    for run in runs:
        if run.seed is not None:
            keys[run.seed].add(run.config_key)
    return next((seed for seed, found in sorted(keys.items()) if len(found) > 1), None)


def _useless(run: ScoredRun, metric: str) -> str | None:
    """Why a run has no score that could be compared."""
    if run.status == "running":
        return "is still running"
    if run.status != "finished":
        return {"failed": "has failed", "interrupted": "was interrupted", "lost": "was lost"}[run.status]
    if metric not in run.figures:
        return f"did not log {metric}"
    if run.figures[metric].diverged:
        return "diverged"
    return None if run.score(metric) is not None else f"has no {metric} in the last 10% of its steps"


def _uneven(runs: Sequence[ScoredRun]) -> str | None:
    longest = max((run.last_step or 0 for run in runs), default=0)
    short = next((run for run in runs if (run.last_step or 0) < (1 - _SAME_HORIZON) * longest), None)
    if short is None:
        return None
    return f"{short} ended after {short.last_step or 0:,} steps, others after {longest:,}: horizons must match"


def _joined(problems: Sequence[str], most: int = 3) -> str | None:
    if not problems:
        return None
    more = f" and {len(problems) - most} more" if len(problems) > most else ""
    return "; ".join(problems[:most]) + more


def explain_nothing(book: Book, choice: Choice, only: str) -> Exception:
    """Why a side has no runs."""
    if choice.tag is not None:
        known = {row["tag"] for row in book.rows("select distinct tag from tags")}
        versions = {row["git_describe"] for row in book.rows("select distinct git_describe from runs")} - {None}
        if choice.tag not in known | versions:
            return RunNotFound(
                f"no run has the tag or is of the version {choice.tag!r}",
                did_you_mean(choice.tag, known | versions) or "`rollbook tag list` shows the tags that there are",
            )
        if only != "true":
            return RunNotFound(
                f"no run of {choice.tag!r} is of what was asked for",
                f"rollbook runs --where \"list_contains(tags, '{choice.tag}')\" lists them",
            )
    return RunNotFound(f"no run fulfils the condition of {choice.name!r}", "`rollbook runs --where` tries conditions")


def check_metric(book: Book, metric: str, pairs: Sequence[Pair]) -> None:
    """A metric that no run logged is a slip of the pen, not a failure of the candidate."""
    if any(metric in run.figures for pair in pairs for run in (*pair.candidate, *pair.baseline)):
        return
    known = {row["name"] for row in book.rows("select distinct name from summaries")}
    raise MetricNotFound(
        f"no run logged the metric {metric!r}", did_you_mean(metric, known) or "`rollbook show RUN` lists its metrics"
    )
