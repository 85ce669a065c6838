"""The report: verdict first, then what it rests on. HTML in one file, Markdown, JSON, and the figures by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.errors import BookUnwritable
from rollbook.gate.report.details import gather
from rollbook.gate.report.markdown import to_markdown

if TYPE_CHECKING:
    from rollbook.book.book import Book
    from rollbook.gate.decide import Decision

__all__ = ["to_markdown", "write_report"]


def write_report(book: Book, decision: Decision, plain: dict[str, Any], folder: Path) -> Path:
    """All files of the report; the path of the page."""
    from rollbook.gate.report.figures import draw
    from rollbook.gate.report.html import to_html
    from rollbook.plot.style import save, svg_text

    figures = draw(book, decision, plain)
    drawings = {name: svg_text(figure) for name, figure in figures.items()}
    page = to_html(plain, drawings, gather(book, decision))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.html").write_text(page, encoding="utf-8")
        (folder / "report.md").write_text(to_markdown(plain), encoding="utf-8")
        (folder / "report.json").write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        for name, figure in figures.items():
            (folder / f"{name}.svg").write_text(drawings[name], encoding="utf-8")
            save(figure, folder / f"{name}.png")
    except OSError as error:
        raise BookUnwritable(f"cannot write the report to {folder}: {error.strerror or error}") from error
    return folder / "report.html"
