"""plot: curves over seeds, in files and in the terminal."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollbook.cli.options import ListCommand, book_option, choice_options, choose_runs, current_book, json_option
from rollbook.cli.output import print_json, printable, relative, say
from rollbook.cli.table import width
from rollbook.errors import RunNotFound, UsageError, did_you_mean

if TYPE_CHECKING:
    from rollbook.book.book import Book, RunRecord
    from rollbook.plot.compose import Wishes
    from rollbook.plot.curves import FloatArray
    from rollbook.plot.grouping import Panels
    from rollbook.plot.picture import Picture
    from rollbook.plot.published import Published

_MOST_SAID = 3  # remarks of one kind
_EPILOG = """\b
Examples:
  rollbook plot --algo sac --env-ids Hopper-v5 Walker2d-v5
  rollbook plot --newest --published --out curves.png curves.svg
  rollbook plot --tag latest --tag pr-308 --statistic iqm --out compared.pdf
  rollbook plot --where "task = 'sweep'" --group-by lr,net.size --metric losses/critic --over time
"""


@click.command(cls=ListCommand, epilog=_EPILOG)
@choice_options
@click.option("--tag", "tags", multiple=True, metavar="TAG...", help="Runs with any of these tags; each is a group.")
@click.option("--algo", "algos", multiple=True, metavar="ALGO...", help="Only these algorithms.")
@click.option("--env-ids", "envs", multiple=True, metavar="ENV...", help="Only these environments.")
@click.option("--newest", is_flag=True, help="Only the newest benchmark of each task, algorithm and environment.")
@click.option(
    "--metric", metavar="NAME", help="[default: eval/return if all runs have it, else charts/episodic_return]"
)
@click.option("--over", type=click.Choice(["steps", "time"]), default="steps", show_default=True)
@click.option("--group-by", metavar="KEY,KEY", help="Columns of the view runs, or parameters [default: algo and more].")
@click.option("--statistic", type=click.Choice(["mean", "iqm"]), default="mean", show_default=True)
@click.option("--smooth", default=0.05, show_default=True, metavar="SHARE", help="Moving average, of the range of x.")
@click.option("--points", default=200, show_default=True, metavar="N", help="Of the common grid.")
@click.option("--no-seeds", is_flag=True, help="Without a thin line for each run.")
@click.option("--published", is_flag=True, help="Draw published scores beside ours.")
@click.option("--out", multiple=True, metavar="FILE...", help="A picture: .png, .svg or .pdf [default: the terminal].")
@click.option("--title", metavar="TEXT")
@json_option
@book_option
def plot(
    runs: tuple[str, ...],
    regex: str | None,
    where: str | None,
    task: str | None,
    tags: tuple[str, ...],
    algos: tuple[str, ...],
    envs: tuple[str, ...],
    newest: bool,
    metric: str | None,
    group_by: str | None,
    no_seeds: bool,
    published: bool,
    out: tuple[str, ...],
    as_json: bool,
    **wishes: Any,
) -> None:
    """Draw curves: seeds folded into a line with its interval, a panel for each environment.

    Runs are grouped by algorithm; by tag, if several are given; and by the few parameters in which runs of one
    algorithm on one environment differ. Centre and interval end where the first run ends.
    """
    from rollbook.plot.compose import Wishes, add_published, choose_metric, make_picture, read_lines, remarks

    gc.enable()  # ten million points and figures of many panels leave much to collect
    files = _checked(out)
    how = Wishes(**wishes, seeds=bool(files) and not no_seeds)  # in a terminal, thin lines are as thick as others
    book = current_book()
    chosen = _choose(book, choose_runs(book, runs, regex, where, task), tags, algos, envs, newest)
    metric = choose_metric(book, [run.run_id for run in chosen], metric)
    panels, labels, how = _group(chosen, tags, group_by, how)
    curves = read_lines(book, panels, metric, how.over)
    picture = make_picture(panels, labels, curves, metric, how)
    _say_some(remarks(picture, panels, curves, _diverged(book, chosen, metric)))
    if published:
        picture, used, missing = add_published(picture, panels, curves)
        _say_sources(used, missing)
    for file in files:
        _write(picture, file, seeds=how.seeds, quiet=as_json)
    if as_json:
        print_json(_rows(picture, panels, curves, how))
    elif not files:
        _print(picture)


def _checked(out: Sequence[str]) -> list[Path]:
    """Before anything is read or drawn for them."""
    if not out:
        return []
    from rollbook.plot.style import format_of

    files = [Path(name) for name in out]
    for file in files:
        format_of(file)
        if not file.absolute().parent.is_dir():
            raise UsageError(f"there is no folder {file.parent}", f"mkdir -p {file.parent}")
        if file.is_dir():
            raise UsageError(f"{file} is a folder", "--out FILE.png")
    return files


def _choose(
    book: Book,
    runs: list[RunRecord],
    tags: Sequence[str],
    algos: Sequence[str],
    envs: Sequence[str],
    newest: bool,
) -> list[RunRecord]:
    """Narrowed further; a name that no run has is answered with the nearest."""
    for names, seen, what in (
        (tags, {tag for run in runs for tag in run.tags}, "the tag"),
        (algos, {run.algo for run in runs if run.algo}, "the algorithm"),
        (envs, {run.env for run in runs if run.env}, "the environment"),
    ):
        for name in names:
            if name not in seen:
                raise RunNotFound(f"no run matches {what} {name!r}", did_you_mean(name, seen) or _there_are(seen))
    current = {run.run_id for run in book.newest()} if newest else set()
    chosen = [
        run
        for run in runs
        if (not tags or set(tags) & set(run.tags))
        and (not algos or run.algo in algos)
        and (not envs or run.env in envs)
        and (not newest or run.run_id in current)
    ]
    if not chosen:
        raise RunNotFound("no run matches all of these", "`rollbook runs` lists them; `rollbook newest` the newest")
    return chosen


def _there_are(names: set[str]) -> str:
    shown = sorted(names)[:12]
    return (
        f"there are: {', '.join(shown)}{', ...' if len(names) > 12 else ''}" if shown else "`rollbook runs` lists them"
    )


def _group(
    runs: list[RunRecord], tags: Sequence[str], group_by: str | None, how: Wishes
) -> tuple[Panels, list[str], Wishes]:
    import dataclasses

    from rollbook.book.settings import load_settings
    from rollbook.plot.grouping import Grouping

    names = {name for aliases in load_settings().aliases.values() for name in aliases}
    grouping = Grouping(runs, names, tags)
    keys = [key.strip() for key in group_by.split(",") if key.strip()] if group_by else grouping.default_keys()
    grouping.check(keys)
    panels = grouping.panels(keys)
    _say_some(grouping.doubts(panels))
    (only, *others) = sorted({run.algo or "" for run in runs})
    if how.title is None and not others and "algo" not in keys:
        how = dataclasses.replace(how, title=only or None)
    return panels, grouping.labels(keys), how


def _diverged(book: Book, runs: Sequence[RunRecord], metric: str) -> list[str]:
    rows = book.sql(
        "select run_id from summaries where name = $1 and diverged and run_id in (select unnest($2::varchar[]))",
        [metric, [run.run_id for run in runs]],
    ).fetchall()
    return sorted(run_id for (run_id,) in rows)


def _say_some(remarks: Sequence[str]) -> None:
    for remark in remarks[:_MOST_SAID]:
        say(printable(remark))
    if len(remarks) > _MOST_SAID:
        say(f"and {len(remarks) - _MOST_SAID} more of this kind")


def _say_sources(used: Sequence[Published], missing: Sequence[str]) -> None:
    from rollbook.plot.published import sources_of

    for source in sources_of(used):
        say(f"{source.name}: {source.about}; {source.url}")
    if not used:
        say("no published score fits")
    _say_some(missing)


def _write(picture: Picture, file: Path, *, seeds: bool, quiet: bool) -> None:
    from rollbook.plot.panels import draw_picture
    from rollbook.plot.style import save

    save(draw_picture(picture, seeds=seeds), file)
    (say if quiet else print)(relative(file))


def _print(picture: Picture) -> None:
    from rollbook.plot.terminal import draw_terminal

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    print(draw_terminal(picture, width=shutil.get_terminal_size().columns, colour=colour, measure=width))


def _rows(picture: Picture, panels: Panels, drawn: Container[str], how: Wishes) -> list[dict[str, Any]]:
    """One object for each line; null where there is no value."""
    rows = []
    for panel in picture.panels:
        for group in panel.groups:
            members = [run for run in panels[panel.title][group.label] if run.run_id in drawn]
            folded = group.folded
            rows.append(
                {
                    "env": panel.title,
                    "group": group.label,
                    "metric": picture.metric,
                    "over": how.over,
                    "statistic": how.statistic,
                    "level": how.level,
                    "smooth": how.smooth,
                    "run_ids": [run.run_id for run in members],
                    "seeds": [run.seed for run in members],
                    "x": folded.x.tolist(),
                    "center": _nulls(folded.center),
                    "low": _nulls(folded.low),
                    "high": _nulls(folded.high),
                    "each": [_nulls(line) for line in folded.each],
                    "references": [{"label": one.label, "value": one.value} for one in panel.references],
                }
            )
    return rows


def _nulls(values: FloatArray) -> list[float | None]:
    return [value if value == value else None for value in values.tolist()]
