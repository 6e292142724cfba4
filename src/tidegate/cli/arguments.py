"""What can be said on the command line. Parsing only: nothing is imported that takes time."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_EXIT_CODES = """\
exit codes:
  0    done
  1    a query failed while it ran
  2    the command line, a file or a checkpoint is not right; nothing was run
  130  interrupted (Ctrl-C, SIGTERM); what was open waits for the next start
"""


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(
        prog="tidegate",
        description="Event-time pipelines on Spark, as files of YAML or SQL.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and end")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _run(_command(commands, "run", "run a pipeline, and show how it goes"))
    _sql(_command(commands, "sql", "answer a question about files, now"))
    _explain(_command(commands, "explain", "show the plan of a pipeline"))
    _file(_command(commands, "validate", "check a pipeline"))
    _init(_command(commands, "init", "write a pipeline to start from, with some data"))
    _state(_command(commands, "state", "show what a checkpoint holds"))
    _repair(_command(commands, "repair", "take damaged state back to its last whole version"))
    _bench(_command(commands, "bench", "run the benchmarks (in a checkout of the repository)"))
    _demo(_command(commands, "demo", "run the demonstration"))
    return top


def _command(commands: Commands, name: str, does: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=does, description=does[0].upper() + does[1:] + ".")
    command.add_argument("--debug", action="store_true", help="show logs and stack traces, Java's too")
    return command


def _file(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="a pipeline: .yaml, .yml or .sql")


def _spark(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cores", type=_positive, help="how many cores to use (default: all)")
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of the Spark session, such as spark.jars.packages=…; may be given again",
    )


def _run(command: argparse.ArgumentParser) -> None:
    _file(command)
    command.add_argument("--once", action="store_true", help="take what is there, then end")
    command.add_argument("--json", action="store_true", help="a JSON object a batch, and a summary")
    command.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="instead of the file's")
    _spark(command)


def _sql(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", metavar="SQL", help="CREATE STREAM … ; SELECT …")
    command.add_argument("--json", action="store_true", help="a JSON object a row")
    command.add_argument(
        "--limit", type=_positive, default=100, help="how many rows to show (default: %(default)s)"
    )
    _spark(command)


def _explain(command: argparse.ArgumentParser) -> None:
    _file(command)
    command.add_argument(
        "--format", choices=("text", "json", "mermaid"), default="text", help="default: %(default)s"
    )


def _init(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "folder", type=Path, nargs="?", default=Path("tidegate-pipeline"), help="default: %(default)s"
    )


def _state(command: argparse.ArgumentParser) -> None:
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="the folder")
    command.add_argument("--json", action="store_true", help="as one JSON object")
    command.add_argument(
        "--export", type=Path, metavar="FILE", help="write a snapshot of the running fold instead"
    )
    _spark(command)


def _repair(command: argparse.ArgumentParser) -> None:
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="the folder")
    command.add_argument(
        "--to", type=_version, metavar="VERSION", help="instead of the newest version that is whole"
    )
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    _spark(command)


def _bench(command: argparse.ArgumentParser) -> None:
    command.add_argument("rest", nargs=argparse.REMAINDER, metavar="…", help="as for make bench")


def _demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", nargs="?", default="demo-output", help="default: %(default)s")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number greater than zero")
    return int(text)


def _version(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of a version")
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


class _Version(argparse.Action):
    """Looks for the version when it is asked for: that takes longer than all else here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"tidegate {version('tidegate')}")
        parser.exit()
