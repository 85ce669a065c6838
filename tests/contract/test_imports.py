"""What an import costs, and who may import whom."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rollbook

PROJECT = Path(__file__).parents[2]
HEAVY = ["numpy", "pyarrow", "duckdb", "jax", "torch", "matplotlib", "rich", "click", "pandas", "tensorboard", "ray"]


def loaded_after(statement: str) -> set[str]:
    program = f"import contextlib, io, json, sys\n{statement}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_importing_rollbook_imports_nothing_heavy():
    assert loaded_after("import rollbook") & set(HEAVY) == set()


def test_the_help_imports_no_numbers_no_database_and_no_plots():
    statement = (
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    from rollbook.cli import main\n    main(['--help'])"
    )

    assert loaded_after(statement) & (set(HEAVY) - {"click", "rich"}) == set()


@pytest.mark.parametrize("command", ["runs", "sql 'select 1'", "show sac", "top", "plot"])
def test_reading_commands_need_no_framework_and_no_plots(tmp_path, command):
    import shlex

    arguments = [*shlex.split(command), "--book", str(tmp_path / "book")]
    statement = (
        f"import rollbook\nwith rollbook.start('t', config={{'algo': 'sac'}}, book={str(tmp_path / 'book')!r}, "
        "save_code=False) as run:\n    for step in range(2): run.log({'eval/return': 1.0}, step=step)\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    from rollbook.cli import main\n    main({arguments!r})"
    )

    assert loaded_after(statement) & {"jax", "torch", "matplotlib", "ray", "tensorboard"} == set()


def test_the_layers_import_only_downwards():
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=PROJECT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_name_resolves_and_is_listed():
    assert sorted(rollbook.__all__) == [
        "Book",
        "RollbookError",
        "Run",
        "RunRecord",
        "__version__",
        "open",
        "start",
        "train",
    ]
    for name in rollbook.__all__:
        assert getattr(rollbook, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'strat'"):
        rollbook.strat  # noqa: B018
