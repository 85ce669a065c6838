from __future__ import annotations

import re

import numpy as np
import pytest
from drawn import group, picture

from rollbook.cli.table import width as columns_of
from rollbook.plot.curves import Curve, fold
from rollbook.plot.picture import Panel, Picture, Reference
from rollbook.plot.terminal import draw_terminal

TEN = [1000.0, 1010.0, 1020.0, 990.0, 980.0, 400.0, 395.0, 390.0, 100.0, -50.0]


def rising(label: str = "sac") -> Picture:
    line = fold([Curve("run", [0.0, 100_000.0], [0.0, 100.0])])
    return Picture(panels=[Panel("Hopper-v5", [group(0, line, label)])], metric="eval/return")


def braille(text: str) -> np.ndarray:
    """The dots of a drawing, as rows from the top: True where there is one."""
    rows = []
    for line in text.splitlines():
        cells = [ord(char) - 0x2800 if 0x2800 <= ord(char) <= 0x28FF else 0 for char in line]
        for bits in ((0, 3), (1, 4), (2, 5), (6, 7)):
            rows.append([bool(cell >> bit & 1) for cell in cells for bit in bits])
    width = max(map(len, rows))
    return np.array([row + [False] * (width - len(row)) for row in rows])


def test_a_straight_line_is_drawn_straight_with_its_axes_and_label():
    assert draw_terminal(rising(), width=40, height=8) == EXPECTED


def test_a_rising_line_rises():
    dots = braille(draw_terminal(rising(), width=80, height=20))
    columns = np.flatnonzero(dots.any(axis=0))
    heights = [-int(np.flatnonzero(dots[:, column]).mean()) for column in columns]

    assert len(columns) > 100
    assert heights == sorted(heights)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("panels", [1, 5])
def test_no_line_is_wider_than_the_terminal(width, panels):
    made = picture(TEN, [f"Env{number}-v0" for number in range(panels)], [Reference("CleanRL 2,383", 700.0, "#65707b")])

    text = draw_terminal(made, width=width, measure=columns_of)

    assert max(map(columns_of, text.splitlines())) <= width


def test_without_colour_lines_have_letters_and_no_escape_sequences():
    text = draw_terminal(picture([1000.0, 500.0]), width=80)

    assert "\x1b" not in text
    assert {"a algo-0", "b algo-1"} <= set(re.findall(r"[ab] algo-\d", text))
    drawn = "".join(line.split("┤")[-1].split("│")[-1].split(" algo")[0] for line in text.splitlines()[1:15])
    assert drawn.count("a") >= 3
    assert drawn.count("b") >= 3


def test_with_colour_each_line_has_its_own_and_no_letters():
    text = draw_terminal(picture([1000.0, 500.0]), width=80, colour=True)

    assert len(set(re.findall(r"\x1b\[38;5;\d+m", text))) == 2
    assert "a algo-0" not in text


def test_labels_of_ten_lines_each_have_a_row():
    rows = draw_terminal(picture(TEN), width=100, height=8).splitlines()
    named = [row for row in rows if re.search(r"[a-j] algo-\d$", row)]

    assert len(named) == 10


def test_the_end_of_each_line_is_written_with_its_interval():
    text = draw_terminal(picture([1000.0]), width=80)

    assert re.search(r"algo-0 [\d,]+ ± \d+ \(3 runs\)", text)


def test_panels_stand_side_by_side_where_there_is_room():
    titles = ["First-v0", "Second-v0"]

    narrow, wide = (draw_terminal(picture([1.0], titles), width=width) for width in (80, 140))

    assert not any(all(title in line for title in titles) for line in narrow.splitlines())
    assert any(all(title in line for title in titles) for line in wide.splitlines())


def test_a_name_cannot_steer_the_terminal():
    assert "\x1b" not in draw_terminal(rising("\x1b[31mred"), width=80)


def test_a_constant_and_a_single_point_can_be_drawn():
    flat = fold([Curve("run", [0.0, 10.0], [5.0, 5.0])])
    point = fold([Curve("run", [7.0], [5.0])])

    for line in (flat, point):
        text = draw_terminal(Picture(panels=[Panel("env", [group(0, line)])], metric="m"), width=60)
        assert braille(text).any()


EXPECTED = """\
Hopper-v5: eval/return over steps
100 ┤                           ⣀⡤⠖⠋ sac
    │                       ⣀⡤⠖⠋⠁
    │                   ⢀⡤⠔⠋⠁
    │               ⢀⡤⠔⠋⠁
    │           ⢀⣠⠔⠚⠁
    │       ⢀⣠⠔⠚⠁
    │   ⢀⣠⠴⠚⠉
  0 ┤⣠⠴⠚⠉
    └┬─────────────────────────────┬
     0                           100k
sac 100
"""
