"""The rules as transcripts, one module for each operator: a plan, and a script of what it does.

Each transcript is one rule, in the smallest picture that shows it. Times are seconds after noon. Plans
are Python, as in all tests without Spark; scripts are text, as users write them for
`tidegate.testing.check`. `runner` has the ways of running them, which `tests/unit/test_transcripts.py`
and `tests/spark/test_transcripts.py` use.
"""

from tests.transcripts import chains, joins, reorder, sessions, sliding, windows
from tidegate.testing import Transcript

TRANSCRIPTS: list[Transcript] = [
    *windows.TRANSCRIPTS,
    *sessions.TRANSCRIPTS,
    *sliding.TRANSCRIPTS,
    *reorder.TRANSCRIPTS,
    *chains.TRANSCRIPTS,
    *joins.TRANSCRIPTS,
]


def named(start: str) -> Transcript:
    """The only transcript whose name starts so."""
    [found] = [one for one in TRANSCRIPTS if one.name.startswith(start)]
    return found
