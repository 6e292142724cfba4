"""The `tidegate` command. Each command is a module with `run(arguments) → exit code`.

Modules of commands are imported when they are run: `tidegate --help` waits for none of them.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from tidegate.cli.arguments import parser
from tidegate.cli.failures import INTERRUPTED, exit_code, report


def main(given: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code comes back."""
    arguments = parser().parse_args(given)
    try:
        command = import_module(f"tidegate.cli.{arguments.command}")
        code = int(command.run(arguments))
        sys.stdout.flush()  # here, where a reader that is gone can still be told from an error
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if arguments.debug:
            traceback.print_exception(error)
        else:
            report(error)
        return exit_code(error)
