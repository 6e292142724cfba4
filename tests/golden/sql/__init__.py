"""Programs in SQL, each with what it reads and what it puts out.

`name.sql` is the program. A first line `--fail=<text>` makes it one that is refused with that text.
Of the others, `name.<path>.txt` (or `.jsonl`, for nested values) are the rows of the stream that
reads from that path, cut into micro-batches by lines of dashes (or empty lines), times in seconds
after noon; `name.expected.txt` is what goes to each sink, in no order. `TIDEGATE_GOLDEN=write`
writes it anew; read the diff then.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tidegate.testing import table

FOLDER = Path(__file__).parent
_FAIL = "--fail="


def refused() -> list[tuple[str, str]]:
    """Name and message of each program that is refused."""
    return [(name, _first_line(name).removeprefix(_FAIL)) for name in _names() if _fails(name)]


def accepted() -> list[str]:
    return [name for name in _names() if not _fails(name)]


def program(name: str) -> str:
    return FOLDER.joinpath(f"{name}.sql").read_text("utf-8")


def batches(name: str, path: str, schema: pa.Schema) -> list[str]:
    """The rows of a stream as JSON lines, one text a micro-batch."""
    nested = FOLDER / f"{name}.{path}.jsonl"
    if nested.exists():
        return nested.read_text("utf-8").split("\n\n")
    header, _, body = FOLDER.joinpath(f"{name}.{path}.txt").read_text("utf-8").partition("\n")
    return ["\n".join(_lines(f"{header}\n{rows}", schema)) for rows in body.split("---\n")]


def expected(name: str) -> Path:
    return FOLDER / f"{name}.expected.txt"


def _names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.sql"))


def _first_line(name: str) -> str:
    return program(name).partition("\n")[0]


def _fails(name: str) -> bool:
    return _first_line(name).startswith(_FAIL)


def _lines(text: str, schema: pa.Schema) -> Iterator[str]:
    return (json.dumps(row, default=str) for row in table.rows(text, schema))
