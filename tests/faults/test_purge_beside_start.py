"""A purge never removes code that a starting run needs."""

from __future__ import annotations

from pathlib import Path

from rollbook.book.layout import Layout

# Each run has one of a few versions of the code, so that a version is needed again just as a purge removes it.
STARTS_RUNS = """
import random
from pathlib import Path
from rollbook.book.code import restore
from rollbook.book.layout import Layout

layout, project = Layout(Path(os.environ["BOOK"])), Path(sys.argv[1])
(project / ".git").mkdir(parents=True)
os.chdir(project)
sys.modules["__main__"].__dict__.pop("__file__")  # the project around the working folder is ours
rng = random.Random(0)
ended = time.monotonic() + float(sys.argv[2])
count = 0
while time.monotonic() < ended or count < 10:
    version = rng.randrange(8)
    for name in "abc":
        (project / f"{name}.py").write_text(f"{name} = {version}\\n")
    run = rollbook.start("task", book=layout.root)
    run.finish()
    stored = rollbook.open(layout.root).run(run.id).stored()
    assert stored.provenance.code, stored.provenance.problems
    assert restore(layout, stored.provenance.code, project.parent / "restored" / run.id) == 3
    assert (project.parent / "restored" / run.id / "a.py").read_text() == f"a = {version}\\n"
    with open(sys.argv[3], "a") as checked:
        checked.write(run.id + "\\n")
    count += 1
    time.sleep(rng.uniform(0.0, 0.3))
print(count)
"""

# The grace is shortened, or nothing would be swept so soon; it stays longer than a start takes to name its code.
PURGES = """
import functools
from pathlib import Path
from rollbook.book import objects, tidy
from rollbook.book.layout import Layout

layout = Layout(Path(os.environ["BOOK"]))
tidy.sweep = functools.partial(objects.sweep, grace_seconds=float(sys.argv[2]))
swept = purged = 0
ready()
while not Path(sys.argv[3]).exists():
    checked = Path(sys.argv[1]).read_text().split() if Path(sys.argv[1]).exists() else []
    tidy.delete(layout, checked[:-1])  # the newest stays
    done = tidy.purge(layout, checked[:-1])
    swept, purged = swept + done.objects.count, purged + done.runs
print(purged, swept)
"""


def test_the_code_of_every_started_run_can_be_restored_while_others_are_purged(launch, book: Path, tmp_path: Path):
    checked, stop = tmp_path / "checked", tmp_path / "stop"
    Layout(book).create()
    purger = launch(PURGES, checked, 2.5, stop)
    starter = launch(STARTS_RUNS, tmp_path / "project", 8, checked)

    out, err = starter.communicate(timeout=120)
    stop.touch()
    purged_out, purged_err = purger.communicate(timeout=60)

    assert starter.returncode == 0, err
    assert purger.returncode == 0, purged_err
    purged, swept = map(int, purged_out.split()[1:])
    assert purged == int(out) - 1
    assert swept > 3, "nothing was swept: the test showed nothing"
