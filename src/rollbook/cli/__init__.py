"""The command line: parse, call, print. Data goes to stdout, talk to stderr."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    import click

    from rollbook.cli.app import app
    from rollbook.errors import RollbookError

    gc.disable()  # a command ends before there would be anything to collect; looking for it takes a tenth of its time
    debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
    try:
        code = app.main(arguments, prog_name="rollbook", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except RollbookError as error:
        if debug:
            traceback.print_exc()
        _fail(error.message, error.hint, error.exit_code)
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click 8.1 knows no such class, and prints the help itself
            print(error.format_message(), file=sys.stderr)
            sys.exit(2)
        path = error.ctx.command_path if error.ctx else "rollbook"
        # click lists the choices of an option a line each.
        _fail(error.format_message().replace("\n\t", " "), f"{path} --help", 2)
    except (click.Abort, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader (head, less) has gone, which is its right
        sys.exit(0)
    except click.ClickException as error:
        _fail(error.format_message(), None, 2)
    finally:
        gc.enable()


def _fail(message: str, hint: str | None, code: int) -> None:
    from rollbook.cli.output import printable

    print(f"error: {printable(message)}", file=sys.stderr)
    if hint:
        print(f"hint: {printable(hint)}", file=sys.stderr)
    sys.exit(code)
