"""The arguments of all commands. Parsing only: no slow imports."""

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
  2    the command line, a file or a checkpoint is wrong; nothing was run
  130  interrupted (Ctrl-C, SIGTERM); open windows stay in the checkpoint
"""


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(
        prog="tidegate",
        description="Event-time pipelines on Spark, written in YAML or SQL.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _run(_command(commands, "run", "run a pipeline and show its progress"))
    _sql(_command(commands, "sql", "run a SQL query over files, as a batch"))
    _explain(_command(commands, "explain", "show the plan of a pipeline"))
    _file(_command(commands, "validate", "check a pipeline"))
    _init(_command(commands, "init", "write a starter pipeline, with some data"))
    _state(_command(commands, "state", "show the state in a checkpoint"))
    _repair(_command(commands, "repair", "roll damaged state back to its last complete version"))
    _command(commands, "warmup", "archive Java's classes: local sessions then start in half the time")
    _bench(_command(commands, "bench", "run the benchmarks (in a checkout of the repository)"))
    _demo(_command(commands, "demo", "run the demonstration"))
    return top


def _command(commands: Commands, name: str, does: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=does, description=does[0].upper() + does[1:] + ".")
    command.add_argument("--debug", action="store_true", help="show logs and full stack traces")
    return command


def _file(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="a pipeline: .yaml, .yml or .sql")


def _spark(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cores", type=_positive, help="cores of a local session (default: all)")
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of the Spark session, such as spark.jars.packages=…; can be repeated",
    )


def _cluster(command: argparse.ArgumentParser) -> None:
    where = command.add_mutually_exclusive_group()
    where.add_argument("--master", metavar="URL", help="run on a cluster: spark://…, yarn, k8s://…")
    where.add_argument("--remote", metavar="URL", help="run on a Spark Connect server: sc://…")
    command.add_argument(
        "--py-files",
        action="append",
        default=[],
        metavar="FILE",
        help="Python code to ship to executors: .py, .zip, .egg or a wheel; can be repeated",
    )


def _run(command: argparse.ArgumentParser) -> None:
    _file(command)
    command.add_argument("--once", action="store_true", help="process the available data, then end")
    command.add_argument("--json", action="store_true", help="a JSON object per batch, and a summary")
    command.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="use this checkpoint folder")
    _spark(command)
    _cluster(command)


def _sql(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", metavar="SQL", help="CREATE STREAM … ; SELECT …")
    command.add_argument("--json", action="store_true", help="print a JSON object per row")
    command.add_argument(
        "--limit", type=_positive, default=100, help="number of rows to show (default: %(default)s)"
    )
    _spark(command)
    _cluster(command)


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
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="the checkpoint folder")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--export", type=Path, metavar="FILE", help="write a snapshot of the running fold instead"
    )
    _spark(command)


def _repair(command: argparse.ArgumentParser) -> None:
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="the checkpoint folder")
    command.add_argument(
        "--to", type=_version, metavar="VERSION", help="instead of the last complete version"
    )
    command.add_argument("--dry-run", action="store_true", help="show the changes, but make none")
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
    """Reads the version only if it is asked for, since that is slow."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"tidegate {version('tidegate')}")
        parser.exit()
