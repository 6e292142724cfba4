"""The pictures: transcripts of the tests, and some more where there is none."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from scripts.pictures.play import Beat
from scripts.pictures.story import Story
from tests.support.plans import (
    ROWS,
    SCHEMA,
    SECOND,
    TIMESTAMP,
    dedupe_plan,
    hopping,
    join_plan,
    logical_plan,
    plan_of,
    reorder_plan,
    session,
)
from tests.transcripts import named
from tidegate.optimize import optimize
from tidegate.plan.inputs import KeyBy
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.pass_through import Admit
from tidegate.plan.policies import Retracting
from tidegate.plan.sla import declare_sla
from tidegate.plan.sources import Source, Union
from tidegate.plan.time import Micros
from tidegate.plan.windows import AllTime
from tidegate.testing import KernelHost, Transcript, at
from tidegate.testing.table import micros_of

TEN = hopping(10 * SECOND)


def tested(name: str, title: str, tested_by: str) -> Story:
    """The picture of a transcript that the tests have."""
    return Story(name, title, named(tested_by))


def made(name: str, title: str, plan: AnyOperator, script: str, **options: object) -> Story:
    """A picture of its own."""
    return Story(name, title, Transcript(name, plan, script), **options)


def batches(transcript: Transcript, host: KernelHost, first: int = 1) -> Iterator[Beat]:
    """The batches of a script, where more happens than those."""
    for number, step in enumerate(transcript.steps, first):
        host.now = step.now
        yield Beat(f"batch {number}", step.rows, host.batch(*step.rows))


# -- time -----------------------------------------------------------------------------------------

TWO_SOURCES = Union((Source(SCHEMA, "ts", Micros(0)), Source(SCHEMA, "ts", Micros(5 * SECOND))))


def united(*rows: str) -> Transcript:
    """Batches of two sources; each is the rows of the one and of the other."""
    pairs = zip(rows[::2], rows[1::2], strict=True)
    script = "".join(f"left\n{_times(left)}right\n{_times(right)}" for left, right in pairs)
    return Transcript("union", optimize(logical_plan(TEN, feed=TWO_SOURCES, keys=())), script)


def _times(listed: str) -> str:
    return "".join(f"  {time}\n" for time in ("ts", *listed.split())) if listed else ""


SLOW = united("4 12", "", "14 22", "8", "", "16 21", "", "")
SILENT = united("4 12", "8", "18 27", "")


def goes_idle(host: KernelHost) -> Iterator[Beat]:
    """Two batches; then the second source has been silent for longer than is allowed."""
    yield from batches(SILENT, host)
    host.aligner.idle("1")
    yield Beat("2 is idle", [[], []], host.batch([], []))


def ended(name: str, title: str, plan: AnyOperator, script: str) -> Story:
    """A picture of rows and of the end of a batch query."""
    transcript = Transcript(name, plan, script)

    def told(host: KernelHost) -> Iterator[Beat]:
        yield from batches(transcript, host)
        yield Beat("the end", [[]], host.end())

    return Story(name, title, transcript, told)


TIME = [
    tested(
        "closing",
        "A window closes in the first batch whose W has reached its end",
        "a window closes in the first batch whose watermark has reached its end",
    ),
    Story("sources", "W is the lowest watermark of all sources", SLOW, by_source=True),
    tested(
        "between-batches",
        "First W closes what is due, then rows are checked",
        "what the watermark makes due is closed before rows are taken in",
    ),
    ended(
        "batch",
        "A batch DataFrame: no row is late, every window closes",
        plan_of(TEN, lateness=5 * SECOND),
        "rows\n  ts | user\n  21 | ann\n  4  | ann\n  12 | bob\n  7  | ann\n",
    ),
    Story("idle", "An idle source does not count", SILENT, goes_idle, by_source=True),
]

# -- windows --------------------------------------------------------------------------------------

WINDOWS = [
    ended(
        "tumbling",
        "tumbling(10 s, offset 2 s): the start belongs to a window, the end does not",
        plan_of(hopping(10 * SECOND, offset=2 * SECOND), keys=()),
        "rows\n  ts\n  2\n  11\n  12\n  25\n  40\n",
    ),
    ended(
        "hopping",
        "hopping(10 s, slide 4 s): the slide need not divide the size",
        plan_of(hopping(10 * SECOND, 4 * SECOND), keys=()),
        "rows\n  ts\n  9\n  13\n",
    ),
    tested(
        "gaps",
        "hopping(4 s, slide 10 s): a row in a gap belongs to no window",
        "a row in a gap between windows belongs to none and is not late",
    ),
    tested(
        "lateness",
        "Allowed lateness 5 s: the window closes at W >= end + 5 s",
        "on_window_close says it once, when lateness is over",
    ),
    tested(
        "lookback",
        "sliding(10 s): rows that have arrived, as soon as the row arrives",
        "a row that comes later changes no window of what had arrived",
    ),
    tested(
        "lookahead",
        "sliding(10 s, 15 s): the complete range, when W has passed it",
        "a window that looks ahead leaves when the watermark has passed it",
    ),
]

# -- sessions -------------------------------------------------------------------------------------

SESSION = [
    tested(
        "session",
        "session(10 s): it continues through batches and closes a gap after its last row",
        "a session goes on across micro-batches and closes a gap after its last row",
    ),
    tested(
        "session-touching",
        "session(10 s): rows exactly a gap apart are in one session",
        "rows exactly a gap apart belong together, and a microsecond more parts them",
    ),
    tested(
        "session-merging",
        "session(2.5 s), changelog: the row at 2.5 merges two sessions",
        "a changelog deletes each session that merges and inserts the merged one",
    ),
    made(
        "session-three",
        "session(5 s), on_update: the earliest continues, the others are deleted",
        plan_of(session(5 * SECOND), emission=Retracting(), keys=(), tolerance=60 * SECOND),
        "rows\n  ts\n  0\n  10\n  20\nrows\n  ts\n  5\nrows\n  ts\n  15\n",
    ),
    tested(
        "session-cut",
        "session(10 s, max_length 60 s): cut at the multiples of max_length",
        "max_length cuts sessions at its multiples",
    ),
]

# -- late rows ------------------------------------------------------------------------------------

LATE = [
    tested(
        "late-window",
        "hopping(20 s, slide 10 s): a row is late if all its windows have closed",
        "a late row still counts in its windows that are open",
    ),
    tested(
        "late-session",
        "session(10 s): a row that touches an open session is not late",
        "late rows are judged after merging: one that touches a live session is in time",
    ),
    tested(
        "late-session-tied",
        "session(10 s): a newer row of the batch connects an old one to the present",
        "a newer row of its batch ties an old row to the present",
    ),
    tested(
        "late-sliding",
        "sliding(10 s, 15 s): a row at W is late and counts in no window",
        "a row at the watermark is late: dropped, it is content of nothing",
    ),
    made(
        "late-reorder",
        "reorder: a row at W is late, one after it waits",
        reorder_plan(),
        "rows\n  ts\n  5\nrows\n  ts\n  3\n  5\n  7\nrows\n",
    ),
    tested(
        "reassign",
        "reassign(20 s): late rows move to W if they are at most 20 s behind",
        "reassign moves late rows to the watermark if they are not too late",
    ),
]

# -- emission -------------------------------------------------------------------------------------

EMISSION = [
    tested(
        "on-watermark",
        "on_watermark: one row at the end, corrections until the window closes",
        "on_watermark puts out a row at the end and corrects it while lateness allows",
    ),
    tested(
        "on-update",
        "on_update: the net change of each batch, and nothing at the close",
        "on_update tells each batch's net change, and nothing when a window closes",
    ),
    tested(
        "changelog",
        "changelog, hopping(20 s, slide 10 s): inserts and deletes only",
        "a changelog knows inserts and deletes only",
    ),
    tested(
        "periodic",
        "periodic(60 s): once per interval of processing time, and at the close",
        "periodic lets each window speak once an interval, and at its close",
    ),
]

# -- joins ----------------------------------------------------------------------------------------

MEET = "left\n  ts | user\n  5  | ann\n  15 | ann\n  25 | ann\nright\n  at | user\n  12 | ann\n"
FIVES = hopping(10 * SECOND, 5 * SECOND)

JOIN = [
    tested(
        "join-panes",
        "tumbling × tumbling: a pair is emitted in the batch that completes it",
        "a pair leaves in the batch that completes it, whichever side came first",
    ),
    made("join-overlap", 'tumbling × hopping, match="overlap"', join_plan(TEN, FIVES), MEET),
    made(
        "join-within",
        'tumbling × hopping, match="within"',
        join_plan(TEN, FIVES, match="within"),
        MEET,
    ),
    tested(
        "join-sessions",
        "session(5 s) × session(10 s): all pairs, once both sessions have closed",
        "a closed session waits for an open one that it meets",
    ),
]

# -- folds ----------------------------------------------------------------------------------------

FOLDS = [
    made(
        "dedupe",
        "dedupe(within 10 s): ids are kept until W has passed them by 10 s",
        dedupe_plan(10 * SECOND),
        """
        rows
          ts | user
          1  | id 1
          2  | id 1
          4  | id 2
        rows
          ts | user
          3  | id 2
          13 | id 3
        rows
          ts | user
          3  | id 4
          4  | id 2
          3  | id 2
        """,
    ),
    made(
        "fold",
        "A running fold: no window, no row is late",
        plan_of(AllTime(), ROWS, emission=Retracting()),
        """
        rows
          ts | user
          5  | ann
          21 | ann
        rows
          ts | user
          1  | ann
          22 | bob
        """,
    ),
]

# -- admission ------------------------------------------------------------------------------------

LIMITS = declare_sla(
    max_rate=1, capacity=2, max_lag="4 seconds", jitter_budget="6 seconds", arrival="came"
)
ARRIVING = SCHEMA.append(pa.field("came", TIMESTAMP))

ADMISSION = [
    made(
        "admission",
        "max_rate 1/s, capacity 2, max_lag 4 s, jitter_budget 6 s",
        optimize(Admit(KeyBy(Source(ARRIVING, "ts", Micros(0)), ("user",)), LIMITS)),
        """
        rows
          ts | user | came
          0  | ann  | 1
          0  | ann  | 1.25
          1  | ann  | 1.5
          2  | ann  | 2
          0  | ann  | 4.5
          5  | ann  | 5
        rows
          ts | user | came
          11 | ann  | 11.5
          12 | ann  | 12
        """,
        time="came",
        axis="arrival, s",
    ),
]

# -- graphs, processing time, the end -------------------------------------------------------------

TICKING = Transcript(
    "ticks",
    plan_of(TEN),
    """
    rows
      ts | user
      3  | ann
    rows
      ts | user
      7  | ann
    """,
)


def ticks(host: KernelHost) -> Iterator[Beat]:
    """Rows carry the time of their batch; then time alone moves on."""
    yield from batches(TICKING, host)
    for second in (9, 12):
        host.aligner.update("0", host.generators[0].advance(micros_of(at(second))))
        yield Beat(f"tick at {second}", [[]], host.batch([]))


STOPPED = Transcript(
    "drain",
    plan_of(TEN),
    """
    rows
      ts | user
      4  | ann
      7  | ann
      12 | ann
    """,
)


def drained(host: KernelHost) -> Iterator[Beat]:
    """What is open when the stream ends."""
    yield from batches(STOPPED, host)
    yield Beat("drained", [[]], host.end())


CORRECTED = "corrections come in time: the lateness is held back"

REST = [
    Story(
        "hold-back",
        "tumbling(10 s, lateness 15 s), then tumbling(20 s): delayed by 15 s",
        named(CORRECTED),
        first=named(CORRECTED).plan.inputs[0].upstream.operator,
    ),
    tested(
        "reorder",
        "reorder, tolerance 1 s: rows wait until W has passed them",
        "rows wait until the watermark has passed them",
    ),
    Story("processing-time", "Processing time: ticks close windows without rows", TICKING, ticks),
    Story(
        "drain", "stop(drain=True) emits what is open; then the checkpoint is finished", STOPPED, drained
    ),
]

STORIES: Sequence[Story] = (
    *TIME,
    *WINDOWS,
    *SESSION,
    *LATE,
    *EMISSION,
    *JOIN,
    *FOLDS,
    *ADMISSION,
    *REST,
)
