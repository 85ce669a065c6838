from __future__ import annotations

import hashlib
import itertools
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from drawn import group, learned, picture
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rollbook.errors import UsageError
from rollbook.plot.curves import Curve, fold
from rollbook.plot.panels import Group, Panel, Picture, Reference, draw_curves, draw_picture, grid_of_panels
from rollbook.plot.style import FORMATS, GRID, INK, MUTED, PALETTE, PAPER, look, save, svg_text

TEN = [1000.0, 1010.0, 1020.0, 990.0, 980.0, 400.0, 395.0, 390.0, 100.0, -50.0]


def boxes(figure, wanted=None):
    """(text, box) of what is written on the picture, in pixels."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()  # numbers on axes are written only then
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text() and text.get_visible()]
    return [(one.get_text(), one.get_window_extent(renderer)) for one in texts if not wanted or wanted(one.get_text())]


def overlapping(found):
    return [(a, b) for (a, one), (b, other) in itertools.combinations(found, 2) if one.overlaps(other)]


# ---- colours


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Björn Ottosson's, in which equal distances look about equally far."""
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    axes = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    return axes @ np.cbrt(cones @ np.clip(rgb, 0, 1))


# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
SIGHTS = {
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.mark.parametrize("sight", SIGHTS)
def test_the_ten_colours_can_be_told_apart_by_the_colour_blind(sight):
    seen = [oklab(np.array(SIGHTS[sight]) @ linear(colour)) for colour in PALETTE]

    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 0.07


def test_the_ten_colours_can_be_told_apart_and_show_on_light_and_dark_paper():
    seen = [oklab(linear(colour)) for colour in PALETTE]
    luminance = [float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (*PALETTE, PAPER, "#14171a")]
    light, dark = luminance[-2:]

    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 0.14
    assert all((light + 0.05) / (own + 0.05) > 2 for own in luminance[:-2])
    assert all((own + 0.05) / (dark + 0.05) > 2 for own in luminance[:-2])


def test_forty_groups_look_different():
    assert len({look(number) for number in range(40)}) == 40


# ---- labels


@pytest.mark.parametrize("panels", [1, 4, 9])
def test_labels_of_ten_groups_do_not_overlap_and_are_all_on_the_picture(panels):
    figure = draw_picture(picture(TEN, [f"Env{number}-v0" for number in range(panels)]))
    width, height = figure.get_size_inches() * figure.dpi

    labels = boxes(figure, lambda text: text.startswith("algo-"))

    assert len(labels) == 10 * panels
    assert overlapping(labels) == []
    assert all(box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height for _, box in labels)


@pytest.mark.parametrize("panels", [1, 2, 4, 6, 12, 57])
def test_nothing_that_is_written_overlaps_or_leaves_the_picture(panels):
    made = picture([-3000.0, 12_000.0], [f"SomeLongName{number}-v5" for number in range(panels)])
    figure = draw_picture(Picture(panels=made.panels, metric=made.metric, title="A title", note=made.note * 5))
    width, height = figure.get_size_inches() * figure.dpi

    written = boxes(figure)

    assert overlapping(written) == []
    assert all(box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height for _, box in written)
    assert len(written) > 5 * panels


def test_the_label_stands_at_the_end_of_its_line():
    figure = draw_picture(picture([1000.0, 500.0]))
    axes = figure.axes[0]
    labels = dict(boxes(figure, lambda text: text.startswith("algo-")))

    for line in picture([1000.0, 500.0]).panels[0].groups:
        end = axes.transData.transform((line.folded.x[-1], line.folded.center[-1]))
        assert labels[line.label].y0 < end[1] < labels[line.label].y1
        assert labels[line.label].x0 > axes.bbox.x1


def test_a_long_label_is_cut():
    one = group(0, learned(1.0), label="x" * 200)
    figure = draw_picture(Picture(panels=[Panel("env", [one])], metric="m"))

    (label,) = boxes(figure, lambda text: text.startswith("xxx"))
    assert label[0] == "x" * 39 + "…"


def test_many_panels_have_one_legend_instead_of_labels():
    figure = draw_picture(picture([1.0, 2.0], [f"e{number}" for number in range(12)]))

    assert len(boxes(figure, lambda text: text.startswith("algo-"))) == 2


def test_references_are_dashed_and_labelled():
    figure = draw_picture(picture([1000.0], references=[Reference("CleanRL 2,383 on v4", 2383.0, MUTED)]))
    axes = figure.axes[0]

    assert axes.get_ylim()[1] > 2383
    assert [text for text, _ in boxes(figure) if text.startswith("CleanRL")] == ["CleanRL 2,383 on v4"]
    assert any(line.get_ydata()[0] == 2383 and line.is_dashed() for line in axes.lines)


# ---- lines


def test_seeds_are_thin_lines_that_can_be_left_out():
    with_seeds = draw_picture(picture([1000.0])).axes[0]
    without = draw_picture(picture([1000.0]), seeds=False).axes[0]

    assert len(with_seeds.lines) == len(without.lines) + 3


def test_a_wide_interval_does_not_flatten_the_lines():
    steep = fold([Curve("a", [0.0, 1.0], [0.0, 1.0]), Curve("b", [0.0, 1.0], [0.0, 2.0])])
    _, (axes,) = grid_of_panels(["env"])

    draw_curves(axes, [group(0, steep)])

    assert steep.high[-1] > 7
    assert axes.get_ylim()[1] < 2.5


def test_runs_without_a_stretch_in_common_are_drawn_without_a_mean():
    apart = fold([Curve("a", [0.0, 1.0], [1.0, 1.0]), Curve("b", [2.0, 3.0], [5.0, 5.0])])
    _, (axes,) = grid_of_panels(["env"], labels=["algo-0"])

    draw_curves(axes, [group(0, apart)], seeds=False)

    assert sum(np.isfinite(line.get_ydata()).any() and line.get_linewidth() < 1 for line in axes.lines) >= 2


def test_time_is_written_in_minutes():
    minutes = fold([Curve("a", np.linspace(0, 5400, 50), np.linspace(0, 1, 50))])
    figure = draw_picture(Picture(panels=[Panel("env", [group(0, minutes)])], metric="m", over="time"))

    assert {"30 min", "60 min", "90 min", "wall time"} <= {text for text, _ in boxes(figure)}


def test_a_panel_of_nothing_is_empty():
    _, (axes,) = grid_of_panels(["env"])

    draw_curves(axes, [])

    assert axes.get_xlim() == (0, 1)


@pytest.mark.parametrize("label", ["$x^{", "\x1b[31m", "日本語", "<&>", "a\nb"])
def test_any_name_can_be_drawn(tmp_path, label):
    made = Picture(panels=[Panel(label, [group(0, learned(1.0), label=label)])], metric=label, title=label)

    for ending in FORMATS:
        save(draw_picture(made), tmp_path / f"picture.{ending}")

    ET.parse(tmp_path / "picture.svg")


# ---- files

PROGRAM = """
import hashlib, sys
sys.path.insert(0, {folder!r})
from drawn import picture
from rollbook.plot.panels import draw_picture
from rollbook.plot.style import save
for ending in ("png", "svg", "pdf"):
    save(draw_picture(picture([1000.0, 500.0], ["a", "b"])), "again." + ending)
    print(hashlib.sha256(open("again." + ending, "rb").read()).hexdigest())
assert "matplotlib.pyplot" not in sys.modules
"""


def test_the_same_picture_is_the_same_bytes_in_another_process(tmp_path):
    here = []
    for ending in FORMATS:
        save(draw_picture(picture([1000.0, 500.0], ["a", "b"])), tmp_path / f"picture.{ending}")
        here.append(hashlib.sha256((tmp_path / f"picture.{ending}").read_bytes()).hexdigest())
    there = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(folder=str(Path(__file__).parent))],
        cwd=tmp_path,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1000000000"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert there.stdout.split() == here


def test_a_users_own_style_changes_nothing_and_stays_as_it_was(monkeypatch):
    plain = svg_text(draw_picture(picture()))
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 9.0)
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 30.0)

    assert svg_text(draw_picture(picture())) == plain
    assert matplotlib.rcParams["font.size"] == 30.0


def test_files_have_no_date(tmp_path):
    for ending in FORMATS:
        save(draw_picture(picture()), tmp_path / f"picture.{ending}")
        content = (tmp_path / f"picture.{ending}").read_bytes()
        assert not re.search(rb"20\d\d-\d\d-\d\d|CreationDate|D:20\d\d|dc:date", content)


def test_an_svg_keeps_text_as_text_and_the_colours_of_the_theme():
    text = svg_text(draw_picture(picture([1000.0])))

    root = ET.fromstring(text)
    written = {"".join(one.itertext()).strip() for one in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"algo-0", "Hopper-v5", "eval/return", "environment steps"} <= written
    for colour in (INK, MUTED, GRID, PAPER):
        assert colour in text
    assert "sans-serif" in text
    assert text.startswith("<svg")


def test_theme_colours_and_palette_are_all_different():
    assert len({INK, MUTED, GRID, PAPER, *PALETTE}) == 4 + len(PALETTE)


@pytest.mark.parametrize("name", ["picture.jpg", "picture", "picture.sgv"])
def test_an_unknown_ending_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="png, svg, pdf"):
        save(draw_picture(picture()), tmp_path / name)

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_an_error_with_a_hint(tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        save(draw_picture(picture()), tmp_path / "nowhere" / "picture.png")


def test_groups_are_listed_once_in_a_legend():
    made = picture([1.0, 2.0], ["a", "b", "c"])

    assert [one.label for one in made.groups] == ["algo-0", "algo-1"]
    assert all(isinstance(one, Group) for one in made.groups)
