"""The table of docs/versions.md: which version of Spark has which feature, as tests have seen it.

python -m scripts.versions_page    writes it anew from docs/versions.json
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
SEEN, PAGE = DOCS / "versions.json", DOCS / "versions.md"
TABLE = re.compile(r"(<!-- seen -->\n).*?(<!-- /seen -->)", re.DOTALL)


def shown(page: str, seen: Sequence[dict[str, Any]]) -> str:
    """The page with the table of what was seen."""
    table = "\n".join(_rows(seen))
    return TABLE.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)


def _rows(seen: Sequence[dict[str, Any]]) -> list[str]:
    features = dict.fromkeys(name for one in seen for name in one["features"])
    return [
        _row(["", *(f"Spark {one['spark']}" for one in seen)]),
        _row(["---"] * (len(seen) + 1)),
        *(
            _row([name, *(one["features"].get(name, "not tested") for one in seen)])
            for name in sorted(features, key=str.lower)
        ),
        _row(["tests passed", *(str(one["tests"]["passed"]) for one in seen)]),
        _row(["tests skipped", *(str(one["tests"]["skipped"]) for one in seen)]),
        _row(["tests failed", *(str(one["tests"]["failed"]) for one in seen)]),
    ]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(shown(PAGE.read_text("utf-8"), json.loads(SEEN.read_text("utf-8"))), "utf-8")
