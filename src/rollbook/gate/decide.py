"""From a question about a book to a decision: which runs, measured by what, and what the gate says of them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rollbook.book import journal
from rollbook.book.find import of_tag, quoted
from rollbook.gate.floors import is_return, measure_floors
from rollbook.gate.frozen import Frozen, freeze, read_frozen
from rollbook.gate.identical import identical_cells
from rollbook.gate.judge import EXIT_CODES, CellVerdict, Outcome, Verdict, judge
from rollbook.gate.margin import DEFAULT_MARGIN, Constants, parse_margin
from rollbook.gate.measures import Measures, measures_of
from rollbook.gate.scores import (
    Cell,
    Choice,
    Pair,
    ScoredRun,
    check_metric,
    explain_nothing,
    pair_up,
    read_side,
    short_names,
)

if TYPE_CHECKING:
    from rollbook.book.book import Book

_WORST_FIRST: tuple[Outcome, ...] = ("regression", "invalid", "inconclusive")
_WIDER = 4.0  # times the baseline's variance: twice its spread
_FEW_SEEDS = 10
_MOST_NAMES = 6


@dataclass(frozen=True, kw_only=True)
class Question:
    """What `rollbook gate` was asked."""

    candidate: Choice
    baseline: Choice
    algos: tuple[str, ...] = ()
    env_ids: tuple[str, ...] = ()
    task: str | None = None
    metric: str | None = None
    margin: str | None = None  # None: the frozen one
    alpha: float = 0.05
    anchor: str | None = None
    allow_failed: bool = False

    @property
    def only(self) -> str:
        """--algo, --env-ids and --task as a condition."""
        conditions = [
            f"list_contains([{', '.join(map(quoted, values))}], {column})"
            for column, values in (
                ("algo", self.algos),
                ("env", self.env_ids),
                ("task", [self.task] if self.task else []),
            )
            if values
        ]
        return " and ".join(conditions) or "true"


@dataclass(frozen=True, kw_only=True)
class CellDecision:
    """A cell's verdict with the runs behind it."""

    pair: Pair
    verdict: CellVerdict
    constants: Constants | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Decision:
    question: Question
    verdict: Verdict
    cells: tuple[CellDecision, ...]
    frozen: Frozen | None
    chosen_later: bool  # the margin was given although one had been frozen
    measures: Measures | None
    anchor: Decision | None = None

    @property
    def outcome(self) -> Outcome:
        """Of the candidate against the baseline, and against the anchor where there is one: the worse decides."""
        outcomes = [self.verdict.outcome, *([self.anchor.outcome] if self.anchor else [])]
        return next((one for one in _WORST_FIRST if one in outcomes), self.verdict.outcome)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    @property
    def sentence(self) -> str:
        """The answer, for people."""
        against, verdict = self.question.baseline.name, self.verdict
        if self.anchor and self.outcome != self.verdict.outcome:
            against, verdict = f"the anchor {self.question.anchor}", self.anchor.verdict
        return f"{self.outcome}: {self.question.candidate.name} against {against}: {verdict.reason}"

    @property
    def warnings(self) -> list[str]:
        """What a reader should know before believing it."""
        found = [f"{cell.verdict.cell}: {warning}" for cell in self.cells for warning in cell.warnings]
        if self.chosen_later and self.frozen:
            found.append(
                f"the margin {self.verdict.margin} was chosen after the fact: "
                f"{self.frozen.margin} was frozen with {self.frozen.tag}"
            )
        if left := [run for cell in self.cells for run in cell.pair.left_out]:
            found.append(f"{len(left)} runs without a score were left out, as --allow-failed asked for")
        return found


def decide(
    book: Book,
    question: Question,
    *,
    looks: Mapping[Cell, int] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Decision:
    """`looks` are those of an adaptive gate that each cell has come to; one that is not named is at its first. `tell`
    hears of constants that are frozen on the way.
    """
    pairs = _pairs(book, question)
    if question.metric:
        check_metric(book, question.metric, pairs)
    frozen, before = _constants(book, question, pairs, tell)
    identical = identical_cells(book, pairs)
    decision = decide_on(question, pairs, frozen, identical, looks, chosen_later=_chosen_later(question, before))
    if question.anchor is None:
        return decision
    anchor = dataclasses.replace(question, baseline=by_tag(question.anchor), anchor=None)
    return dataclasses.replace(decision, anchor=decide(book, anchor, looks=looks, tell=tell))


def by_tag(tag: str) -> Choice:
    """Runs that carry a tag, or are of a git version."""
    return Choice(name=tag, where=of_tag(tag), tag=tag)


def record(book: Book, decision: Decision, plain: Mapping[str, Any]) -> int:
    """Write a verdict down in the journal, with its JSON form."""
    runs = [run.run_id for cell in decision.cells for run in cell.pair.candidate]
    return journal.append(book.layout.journal, "verdict", runs, **plain)


def _pairs(book: Book, question: Question) -> list[Pair]:
    sides = []
    for choice in (question.candidate, question.baseline):
        side = read_side(book, choice, question.metric, only=question.only)
        if not side:
            raise explain_nothing(book, choice, question.only)
        sides.append(side)
    candidate, baseline = sides
    asked_for = [cell for cell in baseline if cell not in candidate] if question.env_ids else []
    absent = set(question.env_ids) - {cell.env for cell in (*candidate, *asked_for)}
    asked_for += [Cell(task=_only_task(candidate), algo=_only_algo(candidate), env=env) for env in sorted(absent)]
    return pair_up(candidate, baseline, metric=question.metric, asked_for=asked_for, allow_failed=question.allow_failed)


def _only_task(cells: Mapping[Cell, Any]) -> str:
    return Counter(cell.task for cell in cells).most_common(1)[0][0]


def _only_algo(cells: Mapping[Cell, Any]) -> str | None:
    return Counter(cell.algo for cell in cells).most_common(1)[0][0]


def _constants(
    book: Book, question: Question, pairs: Sequence[Pair], tell: Callable[[str], None]
) -> tuple[Frozen | None, Frozen | None]:
    """What the baseline's tag has frozen, now and before this question. What was forgotten is frozen, and said."""
    tag = question.baseline.tag
    if tag is None:
        return None, None
    before = read_frozen(book.layout, tag)
    known = before.cells if before else {}
    lacking = {
        pair.cell: (pair.metric, pair.baseline)
        for pair in pairs
        if pair.cell not in known and not pair.problem and len(pair.baseline) >= 2
    }
    if not lacking:
        return before, before
    which = ", ".join(map(str, lacking)) if len(lacking) <= _MOST_NAMES else f"{len(lacking)} cells"
    tell(f"freezing the constants of {tag} in {which}")
    return freeze_cells(book, tag, lacking, margin=None if before else question.margin, given={}), before


def freeze_cells(
    book: Book,
    tag: str,
    cells: Mapping[Cell, tuple[str, Sequence[ScoredRun]]],
    *,
    margin: str | None,
    given: Mapping[str, float],
) -> Frozen:
    envs = [cell.env for cell, (metric, _) in cells.items() if cell.env and is_return(metric)]
    return freeze(book.layout, tag, cells, margin=margin, floors={**given, **measure_floors(envs, given)})


def _chosen_later(question: Question, before: Frozen | None) -> bool:
    if question.margin is None or before is None:
        return False
    return str(parse_margin(question.margin)) != before.margin


def decide_on(
    question: Question,
    pairs: Sequence[Pair],
    frozen: Frozen | None = None,
    identical: Collection[Cell] = (),
    looks: Mapping[Cell, int] | None = None,
    *,
    chosen_later: bool = False,
) -> Decision:
    """Of runs that have been read."""
    names = short_names([pair.cell for pair in pairs])
    by_name = {names[pair.cell]: pair for pair in pairs}
    known = frozen.cells if frozen else {}
    constants = {
        name: known[pair.cell].constants
        for name, pair in by_name.items()
        if pair.cell in known and known[pair.cell].metric == pair.metric
    }
    verdict = judge(
        {name: pair.scores(pair.candidate) for name, pair in by_name.items()},
        {name: pair.scores(pair.baseline) for name, pair in by_name.items()},
        margin=question.margin or (frozen.margin if frozen else DEFAULT_MARGIN),
        alpha=question.alpha,
        constants=constants,
        identical=[names[cell] for cell in identical],
        problems={name: pair.problem for name, pair in by_name.items() if pair.problem},
        look=None if looks is None else {name: looks.get(pair.cell, 0) for name, pair in by_name.items()},
    )
    cells = tuple(
        CellDecision(
            pair=by_name[one.cell],
            verdict=one,
            constants=constants.get(one.cell),
            warnings=_cell_warnings(by_name[one.cell], one, frozen),
        )
        for one in verdict.cells
    )
    return Decision(
        question=question,
        verdict=verdict,
        cells=cells,
        frozen=frozen,
        chosen_later=chosen_later,
        measures=measures_of(cells),
    )


def _cell_warnings(pair: Pair, verdict: CellVerdict, frozen: Frozen | None) -> tuple[str, ...]:
    found = list(pair.warnings)
    ratio = verdict.variance_ratio
    if ratio is not None and ratio > _WIDER and verdict.candidate_seeds < _FEW_SEEDS:
        found.append(
            f"the candidate's variance is {ratio:.3g} times the baseline's: "
            "with so few seeds, the gate errs more often than it promises if such scores are skewed"
        )
    known = frozen.cells.get(pair.cell) if frozen else None
    if known and known.metric != pair.metric:
        found.append(f"{known.metric} was frozen, {pair.metric} is compared: constants are of these runs")
    return tuple(found)
