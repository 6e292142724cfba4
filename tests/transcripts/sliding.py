"""Sliding windows: a window around each row."""

from tests.support.plans import ROWS, SECOND, plan_of, sliding
from tidegate.kernels import aggregates as a
from tidegate.plan.policies import Reassign, SideOutput
from tidegate.plan.time import Micros
from tidegate.testing import Transcript

TOTALS = (*ROWS, ("total", a.Sum("items")))
BACK = sliding(10 * SECOND)
AROUND = sliding(10 * SECOND, 15 * SECOND)
MOVE = Reassign(Micros(20 * SECOND))
ASIDE = SideOutput("late")

TRANSCRIPTS = [
    Transcript(
        "a window of what has arrived leaves with its row",
        plan_of(BACK),
        """
        rows
          ts  | user
          100 | ann
        watermark none
        main
          ts  | user | n
          100 | ann  | 1
        rows
          ts  | user
          105 | ann
        watermark 100
        main
          ts  | user | n
          105 | ann  | 2
        """,
    ),
    Transcript(
        "a window that looks ahead leaves when the watermark has passed it",
        plan_of(AROUND, tolerance=SECOND),
        """
        rows
          ts  | user
          100 | ann
          110 | ann
          115 | ann
        watermark none
        rows
          ts  | user
          116 | zoe
        watermark 114
        rows
          ts  | user
          131 | zoe
        watermark 115
        main
          ts  | user | n
          100 | ann  | 3
        rows
        watermark 130
        main
          ts  | user | n
          110 | ann  | 3
          115 | ann  | 2
        """,
    ),
    Transcript(
        "both ends of the range belong to it",
        plan_of(sliding(2 * SECOND), (("total", a.Sum("items")),)),
        """
        rows
          ts | user | items
          1  | ann  | 1
          2  | ann  | 2
          4  | ann  | 4
          5  | ann  | 8
        main
          ts | user | items | total
          1  | ann  | 1     | 1
          2  | ann  | 2     | 3
          4  | ann  | 4     | 6
          5  | ann  | 8     | 12
        """,
    ),
    Transcript(
        "a microsecond outside of the range is outside",
        plan_of(sliding(2 * SECOND, SECOND)),
        """
        rows
          ts       | user
          2.999999 | ann
          3        | ann
          5        | ann
          6        | ann
          6.000001 | ann
          9        | zoe
        rows
        watermark 9
        main
          ts       | user | n
          2.999999 | ann  | 2
          3        | ann  | 2
          5        | ann  | 3
          6        | ann  | 3
          6.000001 | ann  | 3
        """,
    ),
    Transcript(
        "of equal times those that came before count without a lookahead, and all with one",
        plan_of(sliding(0), TOTALS),
        """
        rows
          ts | user | items
          5  | ann  | 1
          5  | bob  | 7
          5  | ann  | 2
        main
          ts | user | items | n | total
          5  | ann  | 1     | 1 | 1
          5  | bob  | 7     | 1 | 7
          5  | ann  | 2     | 2 | 3
        """,
    ),
    Transcript(
        "with a lookahead of nothing all equal times count, whichever batch they came in",
        plan_of(sliding(0, 0), TOTALS, tolerance=SECOND),
        """
        rows
          ts | user | items
          5  | ann  | 1
          5  | ann  | 2
        rows
          ts | user | items
          5  | ann  | 4
          6  | zoe  | 8
        watermark 4
        rows
        watermark 5
        main
          ts | user | items | n | total
          5  | ann  | 1     | 3 | 7
          5  | ann  | 2     | 3 | 7
          5  | ann  | 4     | 3 | 7
        """,
    ),
    Transcript(
        "a row that comes later changes no window of what had arrived",
        plan_of(BACK, TOTALS, tolerance=10 * SECOND),
        """
        rows
          ts | user | items
          20 | ann  | 1
        main
          ts | user | items | n | total
          20 | ann  | 1     | 1 | 1
        rows
          ts | user | items
          15 | ann  | 2
          17 | ann  | 4
          16 | ann  | 8
        watermark 10
        main
          ts | user | items | n | total
          15 | ann  | 2     | 1 | 2
          17 | ann  | 4     | 2 | 6
          16 | ann  | 8     | 2 | 10
        rows
          ts | user | items
          21 | ann  | 16
        watermark 10
        main
          ts | user | items | n | total
          21 | ann  | 16    | 5 | 31
        """,
    ),
    Transcript(
        "a row at the watermark is late: dropped, it is content of nothing",
        plan_of(AROUND, TOTALS),
        """
        rows
          ts | user | items
          20 | ann  | 1
        rows
          ts | user | items
          20 | ann  | 2
          21 | ann  | 4
          36 | zoe  | 8
        watermark 20
        late_rows 1
        late_dropped 1
        rows
        watermark 36
        main
          ts | user | items | n | total
          20 | ann  | 1     | 2 | 5
          21 | ann  | 4     | 2 | 5
        """,
    ),
    Transcript(
        "late rows leave by their channel, whole",
        plan_of(BACK, late=ASIDE),
        """
        rows
          ts | user | items | note
          20 | ann  | 1     | a
        main
          ts | user | items | note | n
          20 | ann  | 1     | a    | 1
        rows
          ts | user | items | note
          18 | ann  | 2     | b
          20 | bob  | 3     | c
          21 | ann  | 4     | d
        watermark 20
        late_rows 2
        late
          ts | user | items | note | late_by | watermark | late_operator         | late_window_start | late_window_end | allowed_lateness
          18 | ann  | 2     | b    | 2       | 20        | 1 sliding(10 seconds) | null              | null            | 0
          20 | bob  | 3     | c    | 0       | 20        | 1 sliding(10 seconds) | null              | null            | 0
        main
          ts | user | items | note | n
          21 | ann  | 4     | d    | 2
        """,
    ),
    Transcript(
        "a late row that is moved has its window at the watermark, at once",
        plan_of(BACK, TOTALS, late=MOVE),
        """
        rows
          ts | user | items
          5  | ann  | 1
          10 | ann  | 2
          20 | ann  | 4
        main
          ts | user | items | n | total
          5  | ann  | 1     | 1 | 1
          10 | ann  | 2     | 2 | 3
          20 | ann  | 4     | 2 | 6
        rows
          ts   | user | items
          0    | ann  | 8
          -0.1 | ann  | 16
        watermark 20
        main
          ts | user | items | n | total
          20 | ann  | 8     | 3 | 14
        late_rows 2
        late_reassigned 1
        late_dropped 1
        rows
          ts | user | items
          25 | ann  | 32
        watermark 20
        main
          ts | user | items | n | total
          25 | ann  | 32    | 3 | 44
        """,
    ),
    Transcript(
        "a late row that is moved waits for its lookahead",
        plan_of(sliding(10 * SECOND, 5 * SECOND), TOTALS, late=MOVE),
        """
        rows
          ts | user | items
          16 | ann  | 1
          20 | zoe  | 2
        rows
          ts | user | items
          10 | ann  | 4
          24 | ann  | 8
        watermark 20
        late_rows 1
        late_reassigned 1
        rows
          ts | user | items
          25 | ann  | 16
        watermark 24
        main
          ts | user | items | n | total
          16 | ann  | 1     | 2 | 5
        rows
        watermark 25
        main
          ts | user | items | n | total
          20 | zoe  | 2     | 1 | 2
          20 | ann  | 4     | 4 | 29
        """,
    ),
    Transcript(
        "a late row that is moved and looks nowhere ahead is due at once",
        plan_of(sliding(10 * SECOND, 0), TOTALS, late=MOVE),
        """
        rows
          ts | user | items
          10 | ann  | 1
          20 | ann  | 2
        rows
          ts | user | items
          12 | ann  | 4
          13 | ann  | 8
          21 | ann  | 16
        watermark 20
        main
          ts | user | items | n | total
          10 | ann  | 1     | 1 | 1
          20 | ann  | 2     | 2 | 3
          20 | ann  | 4     | 4 | 15
          20 | ann  | 8     | 4 | 15
        """,
    ),
    Transcript(
        "only rows that meet the condition have a window, and all are content",
        plan_of(sliding(10 * SECOND, when="items > 1"), TOTALS),
        """
        rows
          ts | user | items
          1  | ann  | 1
          2  | ann  | 2
          3  | ann  | null
          4  | ann  | 4
        main
          ts | user | items | n | total
          2  | ann  | 2     | 2 | 3
          4  | ann  | 4     | 4 | 7
        """,
    ),
    Transcript(
        "the condition is the row's own: content ahead need not meet it",
        plan_of(sliding(0, 10 * SECOND, when="note = 'alarm'"), TOTALS),
        """
        rows
          ts | user | items | note
          1  | ann  | 1     | alarm
          2  | ann  | 2     | null
          3  | ann  | 4     | quiet
          4  | ann  | 8     | alarm
          20 | zoe  | 16    | alarm
        rows
        watermark 20
        main
          ts | user | items | note  | n | total
          1  | ann  | 1     | alarm | 4 | 15
          4  | ann  | 8     | alarm | 1 | 8
        """,
    ),
    Transcript(
        "null is a key, and rows without a time are errors",
        plan_of(BACK),
        """
        rows
          ts   | user
          1    | null
          2    | ann
          null | ann
          3    | null
        main
          ts | user | n
          1  | null | 1
          2  | ann  | 1
          3  | null | 2
        errors
          reason                  | row
          event time 'ts' is null | {"user":"ann"}
        errors 1
        """,
    ),
    Transcript(
        "without a key all rows are around all",
        plan_of(BACK, keys=()),
        """
        rows
          ts | user
          1  | ann
          2  | bob
          9  | null
          12 | eve
        main
          ts | user | n
          1  | ann  | 1
          2  | bob  | 2
          9  | null | 3
          12 | eve  | 3
        """,
    ),
]
