"""Sessions."""

from tests.support.plans import SECOND, WITH_IDLE, plan_of, session
from tests.transcripts.windows import CHANGELOG, TOTALS, UPDATE
from tidegate.kernels import aggregates as a
from tidegate.plan.policies import OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.time import Micros
from tidegate.testing import Transcript

GAP = session(10 * SECOND)
FIVE = session(5 * SECOND)
OWN_GAPS = session("idle")
MINUTES = session(10 * SECOND, max_length=60 * SECOND)
PERIODIC = Retracting(interval=Micros(60 * SECOND))

TRANSCRIPTS = [
    Transcript(
        "a session goes on across micro-batches and closes a gap after its last row",
        plan_of(GAP, TOTALS),
        """
        rows
          ts | user | items
          1  | ann  | 1
        watermark none
        rows
          ts | user | items
          6  | ann  | 2
        watermark 1
        rows
          ts | user | items
          15 | bob  | 4
        watermark 6
        rows
          ts | user | items
          16 | bob  | 8
        watermark 15
        rows
        watermark 16
        main
          user | window_start | window_end | n | total
          ann  | 1            | 16         | 2 | 3
        """,
    ),
    Transcript(
        "rows exactly a gap apart belong together, and a microsecond more parts them",
        plan_of(GAP),
        """
        rows
          ts        | user
          10        | ann
          0         | ann
          20.000001 | ann
          40        | zoe
        rows
        watermark 40
        main
          user | window_start | window_end | n
          ann  | 0            | 20         | 2
          ann  | 20.000001    | 30.000001  | 1
        """,
    ),
    Transcript(
        "a row of a later batch bridges two sessions",
        plan_of(GAP, TOTALS, tolerance=60 * SECOND),
        """
        rows
          ts | user | items
          0  | ann  | 1
        rows
          ts | user | items
          20 | ann  | 2
        rows
          ts | user | items
          10 | ann  | 4
          90 | zoe  | 0
        watermark -40
        rows
        watermark 30
        main
          user | window_start | window_end | n | total
          ann  | 0            | 30         | 3 | 7
        """,
    ),
    Transcript(
        "on_update: the earliest of merged sessions goes on, the others are deleted",
        plan_of(FIVE, TOTALS, emission=UPDATE, tolerance=60 * SECOND),
        """
        rows
          ts | user | items
          0  | ann  | 1
          10 | ann  | 2
          20 | ann  | 4
        main
          user | window_start | window_end | n | total | op
          ann  | 0            | 5          | 1 | 1     | +I
          ann  | 10           | 15         | 1 | 2     | +I
          ann  | 20           | 25         | 1 | 4     | +I
        rows
          ts | user | items
          5  | ann  | 8
        main
          user | window_start | window_end | n | total | op
          ann  | 0            | 5          | 1 | 1     | -U
          ann  | 10           | 15         | 1 | 2     | -D
          ann  | 0            | 15         | 3 | 11    | +U
        rows
          ts | user | items
          15 | ann  | 16
        main
          user | window_start | window_end | n | total | op
          ann  | 0            | 15         | 3 | 11    | -U
          ann  | 20           | 25         | 1 | 4     | -D
          ann  | 0            | 25         | 5 | 31    | +U
        """,
    ),
    Transcript(
        "a changelog deletes each session that merges and inserts the merged one",
        plan_of(session(2_500_000), emission=CHANGELOG, tolerance=60 * SECOND),
        """
        rows
          ts | user
          0  | ann
        main
          user | window_start | window_end | n | op
          ann  | 0            | 2.5        | 1 | +I
        rows
          ts | user
          5  | ann
        main
          user | window_start | window_end | n | op
          ann  | 5            | 7.5        | 1 | +I
        rows
          ts  | user
          2.5 | ann
        main
          user | window_start | window_end | n | op
          ann  | 0            | 2.5        | 1 | -D
          ann  | 5            | 7.5        | 1 | -D
          ann  | 0            | 7.5        | 3 | +I
        """,
    ),
    Transcript(
        "an earlier row moves the start: the old row has the old bounds",
        plan_of(GAP, emission=UPDATE, tolerance=60 * SECOND),
        """
        rows
          ts | user
          20 | ann
        main
          user | window_start | window_end | n | op
          ann  | 20           | 30         | 1 | +I
        rows
          ts | user
          12 | ann
        main
          user | window_start | window_end | n | op
          ann  | 20           | 30         | 1 | -U
          ann  | 12           | 30         | 2 | +U
        """,
    ),
    Transcript(
        "a row that changes neither result nor bounds is not mentioned",
        plan_of(GAP, (("most", a.Max("items")),), emission=UPDATE),
        """
        rows
          ts | user | items
          1  | ann  | 7
          9  | ann  | 3
        main
          user | window_start | window_end | most | op
          ann  | 1            | 19         | 7    | +I
        rows
          ts | user | items
          5  | ann  | 7
        rows
          ts | user | items
          10 | ann  | 7
        main
          user | window_start | window_end | most | op
          ann  | 1            | 19         | 7    | -U
          ann  | 1            | 20         | 7    | +U
        """,
    ),
    Transcript(
        "late rows are judged after merging: one that touches a live session is in time",
        plan_of(GAP),
        """
        rows
          ts | user
          20 | ann
          28 | bob
        rows
          ts | user
          12 | ann
          12 | eve
        watermark 28
        late_rows 1
        late_dropped 1
        rows
          ts | user
          40 | bob
        watermark 28
        rows
        watermark 40
        main
          user | window_start | window_end | n
          ann  | 12           | 30         | 2
          bob  | 28           | 38         | 1
        """,
    ),
    Transcript(
        "a newer row of its batch ties an old row to the present",
        plan_of(GAP),
        """
        rows
          ts | user
          30 | zoe
        rows
          ts | user
          22 | ann
          5  | ann
          13 | ann
          5  | eve
          13 | eve
        watermark 30
        late_rows 2
        rows
          ts | user
          41 | zoe
        watermark 30
        rows
        watermark 41
        main
          user | window_start | window_end | n
          ann  | 5            | 32         | 3
          zoe  | 30           | 40         | 1
        """,
    ),
    Transcript(
        "a session that has closed stays as it is, even where a new one overlaps it",
        plan_of(GAP, emission=UPDATE),
        """
        rows
          ts | user
          3  | ann
          13 | zoe
        main
          user | window_start | window_end | n | op
          ann  | 3            | 13         | 1 | +I
          zoe  | 13           | 23         | 1 | +I
        rows
          ts | user
          1  | ann
          5  | ann
          14 | ann
        watermark 13
        main
          user | window_start | window_end | n | op
          ann  | 1            | 24         | 3 | +I
        late_rows 0
        """,
    ),
    Transcript(
        "allowed lateness keeps sessions open for rows that merge them",
        plan_of(GAP, emission=CHANGELOG, lateness=20 * SECOND),
        """
        rows
          ts | user
          0  | ann
          15 | ann
          29 | zoe
        main
          user | window_start | window_end | n | op
          ann  | 0            | 10         | 1 | +I
          ann  | 15           | 25         | 1 | +I
          zoe  | 29           | 39         | 1 | +I
        rows
          ts | user
          8  | ann
          30 | zoe
        watermark 29
        main
          user | window_start | window_end | n | op
          ann  | 0            | 10         | 1 | -D
          ann  | 15           | 25         | 1 | -D
          zoe  | 29           | 39         | 1 | -D
          ann  | 0            | 25         | 3 | +I
          zoe  | 29           | 40         | 2 | +I
        late_rows 0
        """,
    ),
    Transcript(
        "on_window_close waits until the allowed lateness is over",
        plan_of(GAP, emission=OnWindowClose(), lateness=5 * SECOND),
        """
        rows
          ts | user
          0  | ann
          14 | zoe
        rows
          ts | user
          15 | zoe
          4  | ann
          4  | eve
        watermark 14
        rows
          ts | user
          0  | bob
          19 | zoe
        watermark 15
        late_rows 1
        rows
        watermark 19
        main
          user | window_start | window_end | n
          ann  | 0            | 14         | 2
          eve  | 4            | 14         | 1
        """,
    ),
    Transcript(
        "final waits for nobody, with sessions too",
        plan_of(GAP, emission=OnWindowClose(final=True), lateness=5 * SECOND),
        """
        rows
          ts | user
          0  | ann
          10 | zoe
        rows
        watermark 10
        main
          user | window_start | window_end | n
          ann  | 0            | 10         | 1
        """,
    ),
    Transcript(
        "side_output hands on each row of a late session",
        plan_of(GAP, late=SideOutput("late")),
        """
        rows
          ts | user
          40 | ann
        rows
          ts | user | price | note
          25 | bob  | 1.5   | x
          20 | bob  | null  | y
          31 | eve  | null  | z
        watermark 40
        late
          ts | user | shop | price | items | note | late_by | watermark | late_operator         | late_window_start | late_window_end | allowed_lateness
          25 | bob  | null | 1.5   | null  | x    | 15      | 40        | 1 session(10 seconds) | 20                | 35              | 0
          20 | bob  | null | null  | null  | y    | 20      | 40        | 1 session(10 seconds) | 20                | 35              | 0
        late_rows 2
        late_dropped 0
        """,
    ),
    Transcript(
        "reassign moves late rows to the watermark, where they merge like others",
        plan_of(GAP, TOTALS, late=Reassign(Micros(15 * SECOND))),
        """
        rows
          ts | user | items
          40 | ann  | 1
        rows
          ts | user | items
          29 | ann  | 2
          25 | bob  | 4
          24 | bob  | 8
          48 | bob  | 16
          49 | eve  | 32
        watermark 40
        late_rows 3
        late_reassigned 2
        late_dropped 1
        rows
          ts | user | items
          70 | zoe  | 0
        watermark 49
        rows
        watermark 70
        main
          user | window_start | window_end | n | total
          ann  | 40           | 50         | 2 | 3
          bob  | 40           | 58         | 2 | 20
          eve  | 49           | 59         | 1 | 32
        """,
    ),
    Transcript(
        "null is a key like any other, and so is a part of a key that is null",
        plan_of(GAP, keys=("user", "shop")),
        """
        rows
          ts | user | shop
          0  | null | 1
          5  | null | 1
          5  | null | null
          6  | ann  | null
          9  | ann  | null
          7  | ann  | 1
          40 | zoe  | 1
        rows
        watermark 40
        main
          user | shop | window_start | window_end | n
          null | 1    | 0            | 15         | 2
          null | null | 5            | 15         | 1
          ann  | null | 6            | 19         | 2
          ann  | 1    | 7            | 17         | 1
        """,
    ),
    Transcript(
        "without a key the sessions are those of all rows together",
        plan_of(GAP, keys=()),
        """
        rows
          ts | user
          0  | ann
          9  | bob
        rows
          ts | user
          18 | eve
          40 | zoe
        watermark 9
        rows
        watermark 40
        main
          window_start | window_end | n
          0            | 28         | 3
        """,
    ),
    Transcript(
        "with a gap of its own a row reaches as far as its gap, and further than later ones",
        plan_of(OWN_GAPS, TOTALS, emission=UPDATE, schema=WITH_IDLE, tolerance=60 * SECOND),
        """
        rows
          ts | user | items | idle
          0  | ann  | 1     | 30
          2  | ann  | 2     | 1
          31 | ann  | 4     | 1
        main
          user | window_start | window_end | n | total | op
          ann  | 0            | 30         | 2 | 3     | +I
          ann  | 31           | 32         | 1 | 4     | +I
        rows
          ts | user | items | idle
          30 | ann  | 8     | 0.5
          40 | ann  | 16    | 5
        main
          user | window_start | window_end | n | total | op
          ann  | 0            | 30         | 2 | 3     | -U
          ann  | 0            | 30.5       | 3 | 11    | +U
          ann  | 40           | 45         | 1 | 16    | +I
        rows
          ts | user | items | idle
          30 | ann  | 32    | 10
        main
          user | window_start | window_end | n | total | op
          ann  | 0            | 30.5       | 3 | 11    | -U
          ann  | 31           | 32         | 1 | 4     | -D
          ann  | 40           | 45         | 1 | 16    | -D
          ann  | 0            | 45         | 6 | 63    | +U
        """,
    ),
    Transcript(
        "a row whose own gap is missing or not positive goes to errors; its event time comes first",
        plan_of(OWN_GAPS, schema=WITH_IDLE),
        """
        rows
          ts   | user | idle
          1    | ann  | 5
          2    | ann  | null
          3.25 | bob  | 0
          4    | bob  | -1.5
          null | eve  | null
          30   | zoe  | 1
        errors
          reason                       | row
          gap 'idle' is null           | {"ts":"2024-05-01T12:00:02.000000Z","user":"ann"}
          gap 'idle' is not positive   | {"ts":"2024-05-01T12:00:03.250000Z","user":"bob","idle":"INTERVAL '0 00:00:00' DAY TO SECOND"}
          gap 'idle' is not positive   | {"ts":"2024-05-01T12:00:04.000000Z","user":"bob","idle":"INTERVAL '-0 00:00:01.5' DAY TO SECOND"}
          event time 'ts' is null      | {"user":"eve"}
        errors 4
        rows_in 6
        rows
        watermark 30
        main
          user | window_start | window_end | n
          ann  | 1            | 6          | 1
        """,
    ),
    Transcript(
        "reassigned rows keep their own gap",
        plan_of(OWN_GAPS, late=Reassign(Micros(60 * SECOND)), schema=WITH_IDLE),
        """
        rows
          ts | user | idle
          40 | zoe  | 10
        rows
          ts | user | idle
          5  | ann  | 3
          6  | bob  | 4
          41 | bob  | 1
        watermark 40
        late_rows 2
        late_reassigned 2
        rows
          ts | user | idle
          60 | zoe  | 1
        watermark 41
        rows
        watermark 60
        main
          user | window_start | window_end | n
          ann  | 40           | 43         | 1
          bob  | 40           | 44         | 2
          zoe  | 40           | 50         | 1
        """,
    ),
    Transcript(
        "max_length cuts sessions at its multiples",
        plan_of(MINUTES, emission=CHANGELOG, tolerance=60 * SECOND),
        """
        rows
          ts | user
          45 | ann
          55 | ann
          60 | ann
        main
          user | window_start | window_end | n | op
          ann  | 45           | 60         | 2 | +I
          ann  | 60           | 70         | 1 | +I
        rows
          ts        | user
          59.999999 | ann
          70        | ann
        main
          user | window_start | window_end | n | op
          ann  | 45           | 60         | 2 | -D
          ann  | 60           | 70         | 1 | -D
          ann  | 45           | 60         | 3 | +I
          ann  | 60           | 80         | 2 | +I
        """,
    ),
    Transcript(
        "what max_length has cut is late when the cut has passed",
        plan_of(MINUTES),
        """
        rows
          ts | user
          60 | zoe
        rows
          ts | user
          59 | ann
          61 | ann
        watermark 60
        late_rows 1
        rows
          ts | user
          80 | zoe
        watermark 61
        rows
        watermark 80
        main
          user | window_start | window_end | n
          ann  | 61           | 71         | 1
          zoe  | 60           | 70         | 1
        """,
    ),
    Transcript(
        "periodic lets a session speak once an interval; merged ones keep what is out until then",
        plan_of(GAP, emission=PERIODIC, tolerance=60 * SECOND),
        """
        rows
          ts | user
          0  | ann
        now 100
        main
          user | window_start | window_end | n | op
          ann  | 0            | 10         | 1 | +I
        rows
          ts | user
          20 | ann
        now 130
        main
          user | window_start | window_end | n | op
          ann  | 20           | 30         | 1 | +I
        rows
          ts | user
          10 | ann
        now 170
        rows
          ts | user
          12 | ann
        now 190
        main
          user | window_start | window_end | n | op
          ann  | 0            | 10         | 1 | -U
          ann  | 20           | 30         | 1 | -D
          ann  | 0            | 30         | 4 | +U
        rows
          ts | user
          13 | ann
          90 | zoe
        now 191
        main
          user | window_start | window_end | n | op
          zoe  | 90           | 100        | 1 | +I
        rows
        now 192
        watermark 30
        main
          user | window_start | window_end | n | op
          ann  | 0            | 30         | 4 | -U
          ann  | 0            | 30         | 5 | +U
        """,
    ),
]
