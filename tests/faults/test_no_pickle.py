"""No pickle is ever written or loaded, and no text from a book is ever run as code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rollbook

PACKAGE = Path(rollbook.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
REFUSED = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__"):
                yield str(node.args[0].value)


def called(tree: ast.AST) -> Iterator[str]:
    """Plain calls, and the modules' own: `re.compile` and `model.eval()` are something else, as is a constant text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or (node.args and isinstance(node.args[0], ast.Constant)):
            continue
        if isinstance(node.func, ast.Name):
            yield node.func.id
        if isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "builtins":
            yield node.func.attr
        if any(keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True) for keyword in node.keywords):
            yield "allow_pickle"


def test_the_package_is_there_to_be_looked_at() -> None:
    assert PACKAGE / "book" / "checkpoints.py" in MODULES


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_imports_pickle_or_runs_text_as_code(module: Path) -> None:
    tree = ast.parse(module.read_text())

    assert REFUSED.isdisjoint(name.split(".")[0] for name in imported(tree))
    assert {"eval", "exec", "compile", "allow_pickle"}.isdisjoint(called(tree))
