"""Chains: operators over the results of other operators."""

from tests.support.plans import SECOND, hopping, plan_of, session, sliding
from tidegate.kernels import aggregates as a
from tidegate.plan.policies import Retracting, SideOutput
from tidegate.plan.sources import Derived
from tidegate.testing import Transcript

TEN = hopping(10 * SECOND)
ASIDE = SideOutput("late")
SUMS = (("windows", a.Count(None)), ("rows", a.Sum("n")))

TRANSCRIPTS = [
    Transcript(
        "what a watermark closes is in time for the windows that it closes next",
        plan_of(hopping(20 * SECOND), SUMS, keys=(), feed=Derived(plan_of(TEN), "window_start")),
        """
        rows
          ts | user
          1  | ann
          5  | ann
          5  | bob
          12 | ann
          20 | zoe
        rows
          ts | user
          30 | zoe
        watermark 20
        main
          window_start | window_end | windows | rows
          0            | 20         | 3       | 4
        """,
    ),
    Transcript(
        "by its end a result lies in the window that begins there",
        plan_of(hopping(20 * SECOND), SUMS, keys=(), feed=Derived(plan_of(TEN), "window_end")),
        """
        rows
          ts | user
          1  | ann
          12 | ann
          20 | zoe
        rows
          ts | user
          40 | zoe
        watermark 20
        main
          window_start | window_end | windows | rows
          0            | 20         | 1       | 1
        rows
        watermark 40
        main
          window_start | window_end | windows | rows
          20           | 40         | 2       | 2
        """,
    ),
    Transcript(
        "corrections come in time: the lateness is held back",
        plan_of(
            hopping(20 * SECOND),
            SUMS,
            keys=(),
            feed=Derived(plan_of(TEN, lateness=15 * SECOND), "window_end"),
        ),
        """
        rows
          ts | user
          5  | ann
          12 | zoe
        rows
          ts | user
          24 | zoe
        watermark 12
        rows
          ts | user
          6  | ann
        watermark 24
        rows
          ts | user
          35 | zoe
        watermark 24
        rows
        watermark 35
        main
          window_start | window_end | windows | rows
          0            | 20         | 2       | 3
        """,
    ),
    Transcript(
        "sessions of busy windows, as a changelog",
        plan_of(
            session(10 * SECOND),
            SUMS,
            emission=Retracting(),
            feed=Derived(plan_of(TEN), "window_start"),
        ),
        """
        rows
          ts | user
          1  | ann
          11 | ann
          15 | ann
          20 | zoe
        rows
          ts | user
          21 | ann
          45 | zoe
        watermark 20
        main
          user | window_start | window_end | windows | rows | op
          ann  | 0            | 20         | 2       | 3    | +I
        rows
          ts | user
          46 | zoe
        watermark 45
        main
          user | window_start | window_end | windows | rows | op
          ann  | 0            | 20         | 2       | 3    | -U
          ann  | 0            | 30         | 3       | 4    | +U
          zoe  | 20           | 30         | 1       | 1    | +I
        """,
    ),
    Transcript(
        "windows over windows around rows wait for the lookahead",
        plan_of(
            TEN,
            (("most", a.Max("n")),),
            feed=Derived(plan_of(sliding(3 * SECOND, 2 * SECOND)), "ts"),
        ),
        """
        rows
          ts | user
          1  | ann
          3  | ann
          4  | ann
          11 | zoe
        rows
          ts | user
          12 | zoe
        watermark 11
        rows
        watermark 12
        main
          user | window_start | window_end | most
          ann  | 0            | 10         | 3
        """,
    ),
    Transcript(
        "around each window those before it",
        plan_of(
            sliding(20 * SECOND, 0), (("rows", a.Sum("n")),), feed=Derived(plan_of(TEN), "window_end")
        ),
        """
        rows
          ts | user
          1  | ann
          2  | ann
          11 | ann
          25 | ann
          36 | ann
          40 | zoe
        rows
        watermark 40
        main
          user | window_start | window_end | n | rows
          ann  | 0            | 10         | 2 | 2
          ann  | 10           | 20         | 1 | 3
          ann  | 20           | 30         | 1 | 4
          ann  | 30           | 40         | 1 | 3
        """,
    ),
    Transcript(
        "late rows of the first operator leave by their channel, and the second has none",
        plan_of(
            TEN, SUMS, keys=(), feed=Derived(plan_of(sliding(0), late=ASIDE, tolerance=SECOND), "ts")
        ),
        """
        rows
          ts | user
          9  | ann
          12 | ann
        rows
          ts | user
          11 | bob
          13 | ann
        watermark 11
        main
          window_start | window_end | windows | rows
          0            | 10         | 1       | 1
        late
          ts | user | late_by | watermark | late_operator        | late_window_start | late_window_end | allowed_lateness
          11 | bob  | 0       | 11        | 1 sliding(0 seconds) | null              | null            | 0
        late_rows 1
        """,
    ),
]
