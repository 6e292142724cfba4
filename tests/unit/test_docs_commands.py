"""Commands in the documentation: those that are not run (`sh`) call what is there, as those that are."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_docs import FENCE, PAGES, ROOT
from tidegate.cli.arguments import parser

HERE_DOCUMENT = re.compile(r"<<'(\w+)'\n.*?^\1$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"(^|[ \t]+)#.*$", re.MULTILINE)
TARGETS = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a page's shell blocks, as words: each on a line, or behind `&&`."""
    for language, code in FENCE.findall(text):
        if language in ("sh", "bash"):
            plain = COMMENT.sub("", HERE_DOCUMENT.sub("", code))
            words = shlex.shlex(plain, posix=True, punctuation_chars="&\n")
            words.whitespace, words.commenters = " \t", ""
            yield from split(words)


def split(words: Iterator[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in [*words, "\n"]:
        if word.strip("&\n"):
            command.append(word)
        elif command:
            yield command
            command = []


def is_known(command: list[str]) -> bool:
    """False for a make target, a `tidegate` command line or a file of ours that does not exist."""
    match command:
        case ["make", target, *_]:
            return target in TARGETS
        case ["tidegate", *arguments]:
            return parses(arguments)
        case ["python", file, *_] | [file, *_] if "/" in file:
            return (ROOT / file).exists()
        case _:
            return True


def parses(arguments: list[str]) -> bool:
    try:
        parser().parse_args(arguments)
    except SystemExit:
        return False
    return True


def unknown(page: Path) -> list[str]:
    found = commands(page.read_text("utf-8"))
    return [shlex.join(command) for command in found if not is_known(command)]


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "examples" / "README.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_what_shell_blocks_call_is_there(page):
    assert unknown(page) == []


def test_an_unknown_command_is_found(tmp_path):
    blocks = [
        "make test && make tea  # with milk",
        "tidegate run a.sql --once  # as it is\ntidegate walk",
        "scripts/postgres.sh\nscripts/no.sh",
        "cat > a.sql <<'END'\nmake tea\nEND\ntidegate run a.sql --twice",
    ]
    page = tmp_path / "page.md"
    page.write_text("".join(f"```sh\n{block}\n```\n" for block in blocks))
    assert unknown(page) == ["make tea", "tidegate walk", "scripts/no.sh", "tidegate run a.sql --twice"]
