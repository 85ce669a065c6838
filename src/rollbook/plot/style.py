"""How pictures look, and how they are written: the same bytes every time, without dates or random names."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rollbook.plot.picture import LineStyle

# Each of these occurs in an SVG only with its own meaning, so that a page can put its own colours in their place.
INK = "#1d2329"
MUTED = "#65707b"
GRID = "#e4e7eb"
PAPER = "#fdfdfc"

# Okabe and Ito's six without black and yellow, and four that were searched for: of all pairs, the least alike differ by
# 0.076 in OKLab to every kind of colour blindness, and by 0.15 to others. They show on dark paper, too.
PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#882b6e",
    "#564e0c",
    "#9179fd",
    "#172de4",
)
_STYLES: tuple[LineStyle, ...] = ("-", (0.0, (5.0, 1.5)), (0.0, (1.5, 1.2)), (0.0, (6.0, 1.5, 1.5, 1.5)))

FORMATS = ("png", "svg", "pdf")
_DPI = 200  # of png
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def look(number: int) -> tuple[str, LineStyle]:
    """Colour and line style of the n-th group: ten colours, then the same ones dashed and dotted."""
    return PALETTE[number % len(PALETTE)], _STYLES[number // len(PALETTE) % len(_STYLES)]


def shown(text: str) -> str:
    """With control characters made visible: no XML allows them, and none may steer a terminal."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


@contextlib.contextmanager
def use_style() -> Iterator[None]:
    """Matplotlib's own defaults and ours, whatever a user's matplotlibrc says; undone at the end."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # A label in a script that the font lacks is boxes in a png, and right in an svg.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_settings())
        yield


def _settings() -> Any:  # its keys are literals to mypy, other ones in each version of matplotlib
    return {
        "font.family": ["sans-serif"],
        # The first comes with matplotlib, so that pictures are the same everywhere; a page may have the others.
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Segoe UI", "Helvetica Neue", "Arial", "sans-serif"],
        "text.parse_math": False,  # a tag may hold dollars
        "text.color": INK,
        "axes.titlecolor": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": MUTED,
        "axes.facecolor": PAPER,
        "figure.facecolor": PAPER,
        "savefig.facecolor": PAPER,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.major.size": 2.5,
        "ytick.major.size": 0,
        "xtick.major.width": 0.7,
        "lines.solid_capstyle": "round",
        "lines.dash_capstyle": "butt",
        "svg.fonttype": "none",  # text stays text: it can be searched, and takes a page's colours
        "svg.hashsalt": "rollbook",
        "pdf.fonttype": 42,
        "path.simplify_threshold": 0.2,
    }


def format_of(path: Path) -> str:
    """png, svg or pdf, by the end of the name."""
    ending = path.suffix.lower().lstrip(".")
    if ending not in FORMATS:
        near = did_you_mean(ending, FORMATS) if ending else None
        raise UsageError(f"{path}: pictures are written as {', '.join(FORMATS)}", near or f"--out {path.stem}.png")
    return ending


def save(figure: Figure, path: Path | str) -> None:
    """As png, svg or pdf; drawn in full before the file is touched."""
    path = Path(path)
    content = _bytes(figure, format_of(path))
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", "--out FILE in a folder that you may write"
        ) from None


def svg_text(figure: Figure) -> str:
    """As an <svg> element to put into a page. INK, MUTED, GRID and PAPER stand in it as they are written here."""
    text = _bytes(figure, "svg").decode()
    return text[text.index("<svg") :]


def _bytes(figure: Figure, ending: str) -> bytes:
    buffer = io.BytesIO()
    with use_style():
        figure.savefig(buffer, format=ending, dpi=_DPI, metadata=_METADATA[ending])
    return buffer.getvalue()
