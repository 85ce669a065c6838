"""Questions load as little as they can: what they need must be there in a process that has asked nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASK = """
import rollbook
run = rollbook.start("task", book="book", save_code=False)
run.log({{"x": 1.5}}, step=3)
{first}
answer = rollbook.open("book").{question}
assert answer == {expected}, answer
"""
FLUSHED = "run._flush()"
ENDED = "run.finish()"


@pytest.mark.parametrize("first", [FLUSHED, ENDED], ids=["a run at work", "an ended run"])
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ('table("select step, value from metrics")', '(["step", "value"], [(3, 1.5)])'),
        ('rows("select task from runs")', '[{"task": "task"}]'),
        ('sql("select value from metrics").fetchall()', "[(1.5,)]"),
    ],
)
def test_the_first_question_of_a_process_is_answered(book, first, question, expected):
    program = ASK.format(first=first, question=question, expected=expected)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
