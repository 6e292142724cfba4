"""Rows put in order."""

from tests.support.plans import SECOND, reorder_plan
from tidegate.plan.policies import Reassign, SideOutput
from tidegate.plan.time import Micros
from tidegate.testing import Transcript

TRANSCRIPTS = [
    Transcript(
        "rows wait until the watermark has passed them",
        reorder_plan(tolerance=SECOND),
        """
        rows
          ts | user
          3  | c
          1  | a
          2  | b
        watermark none
        rows
        watermark 2
        main
          ts | user
          1  | a
          2  | b
        rows
          ts | user
          5  | d
        watermark 2
        rows
        watermark 4
        main
          ts | user
          3  | c
        """,
    ),
    Transcript(
        "a row at the watermark is late, and one after it waits",
        reorder_plan(late=SideOutput("late")),
        """
        rows
          ts | user
          5  | ann
        rows
          ts       | user
          5        | bob
          5.000001 | eve
          3        | ann
        watermark 5
        late_rows 2
        main
          ts | user
          5  | ann
        late
          ts | user | late_by | watermark | late_operator | late_window_start | late_window_end | allowed_lateness
          5  | bob  | 0       | 5         | 1 reorder     | null              | null            | 0
          3  | ann  | 2       | 5         | 1 reorder     | null              | null            | 0
        rows
        watermark 5.000001
        main
          ts       | user
          5.000001 | eve
        """,
    ),
    Transcript(
        "a late row that is moved goes on at once, behind what was before the watermark",
        reorder_plan(late=Reassign(Micros(2 * SECOND))),
        """
        rows
          ts | user
          5  | ann
        rows
          ts | user
          7  | zoe
          3  | bob
          2  | eve
        watermark 5
        main
          ts | user
          5  | ann
          5  | bob
        late_rows 2
        late_reassigned 1
        late_dropped 1
        """,
    ),
]
