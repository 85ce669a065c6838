from __future__ import annotations

import sys
import time

from rollbook.book.programs import Program


def python(code: str, **options: float) -> Program:
    return Program([sys.executable, "-c", code], **options)


def test_programs_run_at_once():
    start = time.monotonic()
    programs = [python("import time; time.sleep(1); print('done')") for _ in range(4)]

    assert [program.answer().line for program in programs] == ["done"] * 4
    assert time.monotonic() - start < 3.5


def test_a_program_that_fails_says_why():
    answer = python("import sys; print('out'); sys.exit('no luck')").answer()

    assert (answer.ok, answer.code, answer.line, answer.error) == (False, 1, None, "no luck")


def test_a_program_that_is_not_there_is_an_answer_and_no_exception():
    answer = Program(["rollbook-no-such-program"]).answer()

    assert not answer.ok
    assert "rollbook-no-such-program" in answer.error


def test_a_program_is_stopped_at_its_deadline_with_its_children():
    start = time.monotonic()
    program = Program(["sh", "-c", "echo begun; sleep 60; true"], timeout_seconds=0.5)

    answer = program.answer()

    assert time.monotonic() - start < 20
    assert answer.code is None
    assert "longer than 0.5 s" in answer.error


def test_a_program_that_says_too_much_is_cut_and_stopped():
    answer = python("while True: print('x' * 1000)").answer(limit_bytes=10_000)

    assert answer.cut
    assert len(answer.output) == 10_000


def test_much_talk_on_both_outputs_does_not_block():
    answer = python("import sys; sys.stderr.write('e' * 10**6); sys.stdout.write('o' * 10**6)").answer()

    assert answer.ok
    assert len(answer.output) == 10**6
    assert answer.error == "e" * 2000
