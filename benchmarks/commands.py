"""How long the commands take that need no Spark: `python -m benchmarks.commands`.

Each is the best of several runs, in seconds of a clock on the wall; 1 if one of them misses the aim.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

#: Seconds in which somebody who waits has an answer.
AIM = 0.5
RUNS = 7

SQL = """\
CREATE STREAM clicks (ts TIMESTAMP, user STRING, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK users WITH (connector = 'discard');
INSERT INTO users SELECT user, window_start, window_end, count(*) AS n
FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE);
"""


def commands(folder: Path) -> dict[str, list[str]]:
    """What is measured, over a pipeline as `tidegate init` makes it and over a program in SQL."""
    _run(["init", str(folder / "starter")])
    pipeline, program = folder / "starter" / "pipeline.yaml", folder / "program.sql"
    program.write_text(SQL)
    over = {
        f"{word}{language}": [word, str(file)]
        for word in ("validate", "explain")
        for language, file in (("", pipeline), (" sql", program))
    }
    return {"--help": ["--help"], **over}


def seconds(arguments: Sequence[str], runs: int = RUNS) -> float:
    return min(_run(arguments) for _ in range(runs))


def _run(arguments: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "tidegate", *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        took = {name: seconds(given) for name, given in commands(Path(folder)).items()}
    for name, best in took.items():
        print(f"tidegate {name:13} {best:5.2f} s{'' if best <= AIM else f', and the aim is {AIM} s'}")
    return int(max(took.values()) > AIM)


if __name__ == "__main__":
    sys.exit(main())
