"""Tumbling and hopping windows."""

from tests.support.plans import ROWS, SECOND, hopping, plan_of
from tidegate.kernels import aggregates as a
from tidegate.plan.policies import OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.time import Micros
from tidegate.testing import Transcript

TEN = hopping(10 * SECOND)
TWENTY_BY_TEN = hopping(20 * SECOND, 10 * SECOND)
TOTALS = (*ROWS, ("total", a.Sum("items")))
UPDATE, CHANGELOG = Retracting(), Retracting(before="-D", after="+I")

TRANSCRIPTS = [
    Transcript(
        "a window closes in the first batch whose watermark has reached its end",
        plan_of(TEN, tolerance=2 * SECOND),
        """
        rows
          ts | user
          1  | ann
          11 | ann
        watermark none
        rows
          ts | user
          12 | bob
        watermark 9
        rows
        watermark 10
        main
          user | window_start | window_end | n
          ann  | 0            | 10         | 1
        """,
    ),
    Transcript(
        "a row at the very end of a window belongs to the next",
        plan_of(TEN),
        """
        rows
          ts       | user
          9.999999 | ann
          10       | ann
          20       | ann
        rows
        watermark 20
        main
          user | window_start | window_end | n
          ann  | 0            | 10         | 1
          ann  | 10           | 20         | 1
        """,
    ),
    Transcript(
        "what the watermark makes due is closed before rows are taken in",
        plan_of(TEN),
        """
        rows
          ts | user
          1  | ann
          10 | ann
        rows
          ts | user
          5  | ann
          12 | ann
        watermark 10
        main
          user | window_start | window_end | n
          ann  | 0            | 10         | 1
        late_rows 1
        late_dropped 1
        """,
    ),
    Transcript(
        "a late row still counts in its windows that are open",
        plan_of(TWENTY_BY_TEN),
        """
        rows
          ts | user
          25 | ann
        rows
          ts | user
          15 | ann
          5  | ann
        watermark 25
        late_rows 1
        rows
          ts | user
          40 | ann
        watermark 25
        rows
        watermark 40
        main
          user | window_start | window_end | n
          ann  | 10           | 30         | 2
          ann  | 20           | 40         | 1
        """,
    ),
    Transcript(
        "null is a key like any other, and a window without rows says nothing",
        plan_of(TEN, TOTALS),
        """
        rows
          ts | user | items
          1  | null | 5
          2  |      | 6
          31 | ann  | null
          50 | zoe  | 1
        rows
        watermark 50
        main
          user | window_start | window_end | n | total
          null | 0            | 10         | 2 | 11
          ann  | 30           | 40         | 1 | null
        """,
    ),
    Transcript(
        "a row in a gap between windows belongs to none and is not late",
        plan_of(hopping(4 * SECOND, 10 * SECOND), keys=()),
        """
        rows
          ts
          3
          4
          9
          10
        unassigned 2
        rows
          ts
          5
          30
        watermark 10
        main
          window_start | window_end | n
          0            | 4          | 1
        unassigned 1
        late_rows 0
        """,
    ),
    Transcript(
        "a row without event time goes to errors and the others go on",
        plan_of(TEN),
        """
        rows
          ts   | user | price
          null | ann  | 1.5
          1    | ann  | 2
          10   | bob  | 3
        errors
          reason                    | row
          event time 'ts' is null   | {"user":"ann","price":1.5}
        errors 1
        rows_in 3
        rows
        main
          user | window_start | window_end | n
          ann  | 0            | 10         | 1
        """,
    ),
    Transcript(
        "on_watermark puts out a row at the end and corrects it while lateness allows",
        plan_of(TEN, TOTALS, lateness=5 * SECOND),
        """
        rows
          ts | user | items
          1  | ann  | 1
          10 | bob  | 1
        rows
          ts | user | items
          2  | ann  | 2
          13 | bob  | 1
        watermark 10
        main
          user | window_start | window_end | n | total
          ann  | 0            | 10         | 2 | 3
        rows
          ts | user | items
          3  | ann  | 4
          3  | eve  | 9
          15 | bob  | 1
        watermark 13
        main
          user | window_start | window_end | n | total
          ann  | 0            | 10         | 3 | 7
          eve  | 0            | 10         | 1 | 9
        rows
          ts | user | items
          4  | ann  | 8
        watermark 15
        late_rows 1
        """,
    ),
    Transcript(
        "on_window_close says it once, when lateness is over",
        plan_of(TEN, emission=OnWindowClose(), lateness=5 * SECOND),
        """
        rows
          ts | user
          1  | ann
          14 | ann
        rows
          ts | user
          2  | ann
          15 | ann
        watermark 14
        rows
        watermark 15
        main
          user | window_start | window_end | n
          ann  | 0            | 10         | 2
        """,
    ),
    Transcript(
        "final waits for nobody",
        plan_of(TEN, emission=OnWindowClose(final=True), lateness=5 * SECOND),
        """
        rows
          ts | user
          1  | ann
          10 | ann
        rows
          ts | user
          2  | ann
        watermark 10
        main
          user | window_start | window_end | n
          ann  | 0            | 10         | 1
        late_rows 1
        """,
    ),
    Transcript(
        "on_update tells each batch's net change, and nothing when a window closes",
        plan_of(TEN, TOTALS, emission=UPDATE),
        """
        rows
          ts | user | items
          1  | ann  | 1
          2  | ann  | 2
        main
          user | window_start | window_end | n | total | op
          ann  | 0            | 10         | 2 | 3     | +I
        rows
          ts | user | items
          3  | ann  | 4
          1  | bob  | 1
        main
          user | window_start | window_end | n | total | op
          ann  | 0            | 10         | 2 | 3     | -U
          ann  | 0            | 10         | 3 | 7     | +U
          bob  | 0            | 10         | 1 | 1     | +I
        rows
          ts | user | items
          20 | eve  | 1
        main
          user | window_start | window_end | n | total | op
          eve  | 20           | 30         | 1 | 1     | +I
        rows
        watermark 20
        """,
    ),
    Transcript(
        "a row that changes no result is not mentioned",
        plan_of(TEN, (("most", a.Max("items")),), emission=UPDATE),
        """
        rows
          ts | user | items
          1  | ann  | 7
        main
          user | window_start | window_end | most | op
          ann  | 0            | 10         | 7    | +I
        rows
          ts | user | items
          2  | ann  | 7
          3  | ann  | null
        """,
    ),
    Transcript(
        "a changelog knows inserts and deletes only",
        plan_of(TWENTY_BY_TEN, emission=CHANGELOG),
        """
        rows
          ts | user
          12 | ann
        main
          user | window_start | window_end | n | op
          ann  | 0            | 20         | 1 | +I
          ann  | 10           | 30         | 1 | +I
        rows
          ts | user
          22 | ann
        main
          user | window_start | window_end | n | op
          ann  | 10           | 30         | 1 | -D
          ann  | 10           | 30         | 2 | +I
          ann  | 20           | 40         | 1 | +I
        """,
    ),
    Transcript(
        "periodic lets each window speak once an interval, and at its close",
        plan_of(TEN, emission=Retracting(interval=Micros(60 * SECOND))),
        """
        rows
          ts | user
          1  | ann
        now 100
        main
          user | window_start | window_end | n | op
          ann  | 0            | 10         | 1 | +I
        rows
          ts | user
          2  | ann
        now 130
        rows
          ts | user
          3  | ann
        now 160
        main
          user | window_start | window_end | n | op
          ann  | 0            | 10         | 1 | -U
          ann  | 0            | 10         | 3 | +U
        rows
          ts | user
          4  | ann
          10 | bob
        now 161
        main
          user | window_start | window_end | n | op
          bob  | 10           | 20         | 1 | +I
        rows
        now 162
        watermark 10
        main
          user | window_start | window_end | n | op
          ann  | 0            | 10         | 3 | -U
          ann  | 0            | 10         | 4 | +U
        """,
    ),
    Transcript(
        "side_output hands late rows on unchanged, and says how late they were",
        plan_of(TEN, late=SideOutput("late")),
        """
        rows
          ts | user | price | note
          1  | ann  | 1     | a
          25 | ann  | 1     | b
        rows
          ts  | user | price | note
          3.5 | bob  | null  | c
        watermark 25
        main
          user | window_start | window_end | n
          ann  | 0            | 10         | 1
        late
          ts  | user | shop | price | items | note | late_by | watermark | late_operator          | late_window_start | late_window_end | allowed_lateness
          3.5 | bob  | null | null  | null  | c    | 21.5    | 25        | 1 tumbling(10 seconds) | 0                 | 10              | 0
        late_rows 1
        late_dropped 0
        """,
    ),
    Transcript(
        "reassign moves late rows to the watermark if they are not too late",
        plan_of(TEN, TOTALS, late=Reassign(Micros(20 * SECOND))),
        """
        rows
          ts | user | items
          25 | ann  | 1
        rows
          ts | user | items
          5  | ann  | 2
          4  | ann  | 4
        watermark 25
        late_rows 2
        late_reassigned 1
        late_dropped 1
        rows
          ts | user | items
          30 | ann  | 8
        rows
        watermark 30
        main
          user | window_start | window_end | n | total
          ann  | 20           | 30         | 2 | 3
        """,
    ),
    Transcript(
        "tumbling windows behind a tolerance",
        plan_of(TEN, tolerance=7 * SECOND),
        """
        rows
          ts | user
          7  | ann
          1  | ann
          4  | ann
        watermark none
        rows
          ts | user
          17 | ann
        watermark 0
        rows
          ts | user
          2  | ann
        watermark 10
        main
          user | window_start | window_end | n
          ann  | 0            | 10         | 3
        late_rows 1
        late_dropped 1
        rows
          ts | user
          27 | ann
        watermark 10
        rows
        watermark 20
        main
          user | window_start | window_end | n
          ann  | 10           | 20         | 1
        """,
    ),
]
