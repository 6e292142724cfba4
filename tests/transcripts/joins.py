"""Joins between windows.

Zoe on the left and Yan on the right meet nobody: they move the watermark, which is the lower of the
two sides' own.
"""

from tests.support.plans import LEFT_ROWS, RIGHT_ROWS, SECOND, hopping, join_plan, plan_of, session
from tidegate.kernels import aggregates as a
from tidegate.plan.joins import How
from tidegate.plan.policies import Reassign, SideOutput
from tidegate.plan.sources import Derived, Source
from tidegate.plan.time import Micros
from tidegate.testing import Transcript

TEN = hopping(10 * SECOND)
TWENTY = hopping(20 * SECOND)
EVERY_TWO = hopping(10 * SECOND, 2 * SECOND)
EVERY_FIVE = hopping(10 * SECOND, 5 * SECOND)
GAP = session(10 * SECOND)
FIVE = session(5 * SECOND)
MOVE = Reassign(Micros(20 * SECOND))
ASIDE = SideOutput("late")

#: Windows of either side as events, with a column of their own for what they counted.
CLICKS = plan_of(TEN, (("clicks", a.Count(None)),), feed=Source(LEFT_ROWS, "ts", Micros(0)))
ORDERS = plan_of(TEN, (("orders", a.Count(None)),), feed=Source(RIGHT_ROWS, "at", Micros(0)))

FIXED_WINDOWS = [
    Transcript(
        "a pair leaves in the batch that completes it, whichever side came first",
        join_plan(TEN, TEN),
        """
        left
          ts | user
          1  | ann
          12 | ann
        right
        watermark none
        left_rows 2
        right_rows 0
        joined_pairs 0
        left
        right
          at | user
          9  | ann
          11 | bob
        watermark none
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 0                  | 10               | 1  | 9
        right_rows 2
        joined_pairs 1
        left
          ts | user
          19 | bob
          9  | bob
        right
        watermark 11
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          bob  | 10                | 20              | 10                 | 20               | 19 | 11
        left_rows 2
        late_rows 1
        """,
    ),
    Transcript(
        "a pane is purged at exactly its end plus the lateness",
        join_plan(TEN, TEN, lateness=(5 * SECOND, 5 * SECOND)),
        """
        left
          ts        | user
          1         | ann
          14.999999 | zoe
        right
          at        | user
          14.999999 | yan
        watermark none
        left
          ts | user
          15 | zoe
        right
          at | user
          2  | ann
          15 | yan
        watermark 14.999999
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 0                  | 10               | 1  | 2
        windows_closed 0
        late_rows 0
        left
        right
          at | user
          3  | ann
        watermark 15
        right_rows 1
        joined_pairs 0
        windows_closed 1
        late_rows 1
        late_dropped 1
        """,
    ),
    Transcript(
        "late rows after the purge are counted, and do not even meet each other",
        join_plan(TEN, TEN, how="full"),
        """
        left
          ts | user
          10 | zoe
        right
          at | user
          10 | yan
        watermark none
        left
          ts | user
          1  | ann
          2  | ann
        right
          at | user
          3  | ann
        watermark 10
        left_rows 2
        right_rows 1
        joined_pairs 0
        windows_closed 0
        late_rows 3
        late_dropped 3
        left
          ts | user
          20 | zoe
        right
          at | user
          20 | yan
        watermark 10
        left
        right
        watermark 20
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts   | at
          zoe  | 10                | 20              | null               | null             | 10   | null
          yan  | null              | null            | 10                 | 20               | null | 10
        windows_closed 2
        """,
    ),
    Transcript(
        "windows that close leave by the highest time of the side that is behind",
        join_plan(TEN, TEN, how="left", tolerance=(0, 5 * SECOND)),
        """
        left
          ts | user
          1  | ann
          50 | zoe
        right
          at        | user
          14.999999 | yan
        watermark none
        left
        right
          at | user
          15 | yan
        watermark 9.999999
        left
        right
        watermark 10
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | null               | null             | 1  | null
        """,
    ),
    Transcript(
        "a pair leaves once although the right row is in many panes, and shows the earliest that overlaps",
        join_plan(TEN, EVERY_TWO),
        """
        left
          ts | user
          5  | ann
        right
          at        | user
          7         | ann
          12        | ann
          17.999999 | ann
          18        | ann
        watermark none
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | -2                 | 8                | 5  | 7
          ann  | 0                 | 10              | 4                  | 14               | 5  | 12
          ann  | 0                 | 10              | 8                  | 18               | 5  | 17.999999
        joined_pairs 3
        left
          ts | user
          11 | ann
        right
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 10                | 20              | 2                  | 12               | 11 | 7
          ann  | 10                | 20              | 4                  | 14               | 11 | 12
          ann  | 10                | 20              | 8                  | 18               | 11 | 17.999999
          ann  | 10                | 20              | 10                 | 20               | 11 | 18
        joined_pairs 4
        """,
    ),
    Transcript(
        "the hopping side may be the left one",
        join_plan(EVERY_FIVE, TEN),
        """
        left
          ts | user
          3  | ann
          12 | ann
          15 | ann
        right
          at | user
          9  | ann
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | -5                | 5               | 0                  | 10               | 3  | 9
          ann  | 5                 | 15              | 0                  | 10               | 12 | 9
        """,
    ),
    Transcript(
        "two equal right rows give two pairs",
        join_plan(TEN, EVERY_TWO),
        """
        left
          ts | user
          5  | ann
        right
          at | user
          7  | ann
          7  | ann
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | -2                 | 8                | 5  | 7
          ann  | 0                 | 10              | -2                 | 8                | 5  | 7
        joined_pairs 2
        left
          ts | user
          5  | ann
        right
          at | user
          7  | ann
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | -2                 | 8                | 5  | 7
          ann  | 0                 | 10              | -2                 | 8                | 5  | 7
          ann  | 0                 | 10              | -2                 | 8                | 5  | 7
          ann  | 0                 | 10              | -2                 | 8                | 5  | 7
        joined_pairs 4
        """,
    ),
    Transcript(
        "within: the right row itself lies in the left row's pane",
        join_plan(TEN, EVERY_TWO, match="within"),
        """
        left
          ts | user
          5  | ann
        right
          at        | user
          0         | ann
          9.999999  | ann
          10        | ann
          -0.000001 | ann
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | -8                 | 2                | 5  | 0
          ann  | 0                 | 10              | 0                  | 10               | 5  | 9.999999
        """,
    ),
    Transcript(
        "within: the left row, where the left side hops",
        join_plan(EVERY_TWO, TEN, match="within"),
        """
        left
          ts        | user
          0         | ann
          9.999999  | ann
          10        | ann
          -0.000001 | ann
        right
          at | user
          5  | ann
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts       | at
          ann  | -8                | 2               | 0                  | 10               | 0        | 5
          ann  | 0                 | 10              | 0                  | 10               | 9.999999 | 5
        """,
    ),
    Transcript(
        "overlap: panes of two sizes meet where they overlap",
        join_plan(TEN, TWENTY),
        """
        left
          ts | user
          5  | ann
          20 | ann
        right
          at | user
          15 | ann
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 0                  | 20               | 5  | 15
        """,
    ),
    Transcript(
        "within: of two sides that tumble the right row lies in the left row's pane",
        join_plan(TEN, TWENTY, match="within"),
        """
        left
          ts | user
          5  | ann
          12 | ann
        right
          at | user
          3  | ann
          15 | ann
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 0                  | 20               | 5  | 3
          ann  | 10                | 20              | 0                  | 20               | 12 | 15
        """,
    ),
    Transcript(
        "a row waits for the windows of the other side, and no longer",
        join_plan(TEN, EVERY_FIVE),
        """
        left
          ts        | user
          3         | ann
          14.999999 | zoe
        right
          at        | user
          14.999999 | yan
        watermark none
        left
          ts | user
          15 | zoe
        right
          at | user
          12 | ann
          15 | yan
        watermark 14.999999
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 5                  | 15               | 3  | 12
        windows_closed 0
        left
          ts | user
          11 | ann
        right
          at | user
          13 | ann
        watermark 15
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 10                | 20              | 5                  | 15               | 11 | 12
          ann  | 10                | 20              | 5                  | 15               | 11 | 13
        windows_closed 1
        late_rows 0
        """,
    ),
    Transcript(
        "a window that has closed brings nobody together, though both rows are in others that are open",
        join_plan(TEN, EVERY_FIVE, lateness=(10 * SECOND, 0)),
        """
        left
          ts        | user
          3         | ann
          14.999999 | zoe
        right
          at        | user
          14.999999 | yan
        left
          ts | user
          15 | zoe
        right
          at | user
          11 | ann
          15 | yan
        watermark 14.999999
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 5                  | 15               | 3  | 11
        left
        right
          at | user
          12 | ann
        watermark 15
        late_rows 0
        windows_closed 0
        """,
    ),
    Transcript(
        "within, the row that must lie inside waits for one pane only",
        join_plan(TEN, EVERY_FIVE, match="within", how="right"),
        """
        left
          ts | user
          20 | zoe
        right
          at        | user
          7         | ann
          12        | ann
          19.999999 | yan
        watermark none
        left
        right
          at | user
          20 | yan
        watermark 19.999999
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts   | at
          ann  | null              | null            | 0                  | 10               | null | 7
        windows_closed 1
        left
        right
        watermark 20
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts   | at
          ann  | null              | null            | 5                  | 15               | null | 12
        windows_closed 1
        """,
    ),
    Transcript(
        "each side has its own lateness",
        join_plan(TEN, TEN, lateness=(0, 10 * SECOND)),
        """
        left
          ts | user
          5  | ann
          15 | zoe
        right
          at | user
          15 | yan
        left
          ts        | user
          6         | ann
          19.999999 | zoe
        right
          at        | user
          7         | ann
          19.999999 | yan
        watermark 15
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 0                  | 10               | 5  | 7
        late_rows 1
        left
          ts | user
          20 | zoe
        right
          at | user
          8  | ann
          20 | yan
        watermark 19.999999
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 0                  | 10               | 5  | 8
        late_rows 0
        left
        right
          at | user
          9  | ann
        watermark 20
        late_rows 1
        """,
    ),
    Transcript(
        "a row that is moved to the watermark meets those of the present",
        join_plan(TEN, TEN, late=(MOVE, ASIDE)),
        """
        left
          ts | user
          25 | zoe
        right
          at | user
          25 | yan
        left
          ts       | user
          7        | ann
          4.999999 | ann
        right
          at | user | price
          26 | ann  | 1
          8  | ann  | 2
        watermark 25
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at | price
          ann  | 20                | 30              | 20                 | 30               | 25 | 26 | 1
        late
          at | user | price | late_by | watermark | late_operator                                        | late_window_start | late_window_end | allowed_lateness
          8  | ann  | 2     | 17      | 25        | 1 tumbling(10 seconds) × tumbling(10 seconds), right | 0                 | 10              | 0
        left_rows 2
        right_rows 2
        late_rows 3
        late_reassigned 1
        late_dropped 1
        """,
    ),
    Transcript(
        "the policies of the sides may be the other way round",
        join_plan(TEN, TEN, late=(ASIDE, MOVE)),
        """
        left
          ts | user
          25 | zoe
        right
          at | user
          25 | yan
        left
          ts | user
          26 | ann
          8  | ann
        right
          at       | user
          7        | ann
          4.999999 | ann
        watermark 25
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 20                | 30              | 20                 | 30               | 26 | 25
        late
          ts | user | late_by | watermark | late_operator                                       | late_window_start | late_window_end | allowed_lateness
          8  | ann  | 17      | 25        | 1 tumbling(10 seconds) × tumbling(10 seconds), left | 0                 | 10              | 0
        late_rows 3
        late_reassigned 1
        late_dropped 1
        """,
    ),
    Transcript(
        "late rows of both sides leave by channels of their own",
        join_plan(TEN, TEN, late=(SideOutput("late_left"), SideOutput("late_right"))),
        """
        left
          ts | user
          10 | zoe
        right
          at | user
          10 | yan
        left
          ts | user
          1  | ann
        right
          at | user
          2  | ann
        watermark 10
        late_left
          ts | user | late_by | watermark | late_operator                                       | late_window_start | late_window_end | allowed_lateness
          1  | ann  | 9       | 10        | 1 tumbling(10 seconds) × tumbling(10 seconds), left | 0                 | 10              | 0
        late_right
          at | user | late_by | watermark | late_operator                                        | late_window_start | late_window_end | allowed_lateness
          2  | ann  | 8       | 10        | 1 tumbling(10 seconds) × tumbling(10 seconds), right | 0                 | 10              | 0
        late_rows 2
        joined_pairs 0
        """,
    ),
    Transcript(
        "rows between the windows of their side are counted, and meet nothing",
        join_plan(TEN, hopping(4 * SECOND, 10 * SECOND), how="full"),
        """
        left
          ts | user
          5  | ann
          30 | zoe
        right
          at       | user
          3.999999 | ann
          4        | ann
          30       | yan
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 0                  | 4                | 5  | 3.999999
        right_rows 3
        unassigned 1
        late_rows 0
        """,
    ),
    Transcript(
        "a row that lies between the other side's windows waits for none of them",
        join_plan(
            hopping(2 * SECOND),
            hopping(4 * SECOND, 10 * SECOND),
            how="left",
            lateness=(0, 60 * SECOND),
        ),
        """
        left
          ts | user
          3  | ann
          6  | bob
          8  | zoe
        right
          at | user
          10 | yan
        watermark none
        left
        right
        watermark 8
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          bob  | 6                 | 8               | null               | null             | 6  | null
        windows_closed 1
        """,
    ),
    Transcript(
        "a row without its event time is an error, on its own side",
        join_plan(TEN, TEN),
        """
        left
          ts   | user
          1    | ann
          null | bob
        right
          at   | user
          null | ann
          2    | ann
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 0                  | 10               | 1  | 2
        errors
          reason | row
          event time 'ts' is null | {"user":"bob"}
          event time 'at' is null | {"user":"ann"}
        rows_in 4
        left_rows 1
        right_rows 1
        errors 2
        """,
    ),
    Transcript(
        "null keys equal null keys, and nothing else",
        join_plan(TEN, TEN, keys=("user", "shop")),
        """
        left
          ts | user | shop
          1  | null | null
          2  | ann  | null
          3  | null | 1
          4  | ann  | 1
        right
          at | user | shop
          5  | null | null
          6  | ann  | null
          7  | bob  | 1
        main
          user | shop | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          null | null | 0                 | 10              | 0                  | 10               | 1  | 5
          ann  | null | 0                 | 10              | 0                  | 10               | 2  | 6
        """,
    ),
    Transcript(
        "null matches nothing in keys of which the plan says so, and leaves alone when its window closes",
        join_plan(TEN, TEN, keys=("user", "shop"), nulls_match=(False, True), how="full"),
        """
        left
          ts | user | shop
          1  | null | null
          2  | ann  | null
          3  | null | 1
          10 | zoe  | 1
        right
          at | user | shop
          5  | null | null
          6  | ann  | null
          7  | null | 1
          10 | yan  | 1
        main
          user | shop | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | null | 0                 | 10              | 0                  | 10               | 2  | 6
        left_rows 4
        right_rows 4
        joined_pairs 1
        left
          ts | user | shop
          9  | null | 1
        right
          at | user | shop
          10 | null | 1
        watermark 10
        main
          user | shop | left_window_start | left_window_end | right_window_start | right_window_end | ts   | at
          null | null | 0                 | 10              | null               | null             | 1    | null
          null | 1    | 0                 | 10              | null               | null             | 3    | null
          null | null | null              | null            | 0                  | 10               | null | 5
          null | 1    | null              | null            | 0                  | 10               | null | 7
        left_rows 1
        right_rows 1
        late_rows 1
        joined_pairs 0
        """,
    ),
    Transcript(
        "null matches nothing: held rows neither, where windows hop",
        join_plan(TEN, EVERY_FIVE, nulls_match=(False,), how="left"),
        """
        left
          ts | user
          1  | null
          2  | ann
        right
          at | user
          1  | yan
        left
          ts | user
          25 | zoe
        right
          at | user
          3  | null
          4  | ann
          25 | yan
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | -5                 | 5                | 2  | 4
        joined_pairs 1
        left
        right
        watermark 25
        main
          user | left_window_start | left_window_end | ts
          null | 0                 | 10              | 1
        """,
    ),
    Transcript(
        "keys of two names: a pair has both, and each is null if its side is missing",
        join_plan(TEN, TEN, keys=("user",), right_keys=("note",), how="full"),
        """
        left
          ts | user
          1  | ann
          2  | bob
          3  | null
          10 | zoe
        right
          at | user | note
          3  | eve  | ann
          4  | eve  | cid
          5  | eve  | null
          10 | eve  | yan
        main
          user | note | left_window_start | left_window_end | right_window_start | right_window_end | ts | at | user_right
          ann  | ann  | 0                 | 10              | 0                  | 10               | 1  | 3  | eve
          null | null | 0                 | 10              | 0                  | 10               | 3  | 5  | eve
        left
        right
        watermark 10
        main
          user | note | left_window_start | left_window_end | right_window_start | right_window_end | ts   | at   | user_right
          bob  | null | 0                 | 10              | null               | null             | 2    | null | null
          null | cid  | null              | null            | 0                  | 10               | null | 4    | eve
        """,
    ),
    Transcript(
        "keys that have each other's names get a suffix",
        join_plan(TEN, TEN, keys=("user", "note"), right_keys=("note", "user"), how="right"),
        """
        left
          ts | user | note
          1  | ann  | x
          10 | zoe  | x
        right
          at | note | user
          2  | ann  | x
          3  | x    | ann
          10 | yan  | x
        main
          user_left | note_left | note_right | user_right | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann       | x         | ann        | x          | 0                 | 10              | 0                  | 10               | 1  | 2
        left
        right
        watermark 10
        main
          user_left | note_left | note_right | user_right | right_window_start | right_window_end | at
          null      | null      | x          | ann        | 0                  | 10               | 3
        """,
    ),
    Transcript(
        "where: a condition may ask for the keys of both sides",
        join_plan(
            TEN, TEN, keys=("user",), right_keys=("note",), where="note = 'ann' AND \"user\" > 'a'"
        ),
        """
        left
          ts | user
          1  | ann
          2  | bob
        right
          at | note
          3  | ann
          4  | bob
        main
          user | note | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | ann  | 0                 | 10              | 0                  | 10               | 1  | 3
        """,
    ),
    Transcript(
        "without a key everything may meet",
        join_plan(TEN, TEN, keys=()),
        """
        left
          ts | user
          1  | ann
          11 | ann
        right
          at | user
          2  | bob
          3  | null
        main
          left_window_start | left_window_end | right_window_start | right_window_end | ts | user_left | at | user_right
          0                 | 10              | 0                  | 10               | 1  | ann       | 2  | bob
          0                 | 10              | 0                  | 10               | 1  | ann       | 3  | null
        """,
    ),
    Transcript(
        "where: a pair that does not meet the condition is no pair",
        join_plan(TEN, TEN, keys=(), how="left", where="price > items"),
        """
        left
          ts | items
          1  | 5
          2  | 8
          3  | null
          20 | 0
        right
          at | price
          4  | 6
          5  | 5
          6  | null
          20 | 0
        main
          left_window_start | left_window_end | right_window_start | right_window_end | ts | items | at | price
          0                 | 10              | 0                  | 10               | 1  | 5     | 4  | 6
        joined_pairs 1
        left
        right
        watermark 20
        main
          left_window_start | left_window_end | right_window_start | right_window_end | ts | items | at   | price
          0                 | 10              | null               | null             | 2  | 8     | null | null
          0                 | 10              | null               | null             | 3  | null  | null | null
        """,
    ),
    Transcript(
        "where: the windows of a pair can be asked for",
        join_plan(TEN, EVERY_TWO, where="right_window_start < left_window_start AND at > ts"),
        """
        left
          ts | user
          5  | ann
        right
          at | user
          4  | ann
          7  | ann
          9  | ann
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | -2                 | 8                | 5  | 7
        joined_pairs 1
        """,
    ),
]

#: A row that meets another, one for each side that meets nothing, and a late one that comes in time.
UNMATCHED = """
    left
      ts | user
      1  | ann
      2  | bob
      14 | zoe
    right
      at | user
      4  | eve
      14 | yan
    left
      ts | user
      15 | zoe
    right
      at | user
      3  | ann
      15 | yan
    watermark 14
    main
      user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
      ann  | 0                 | 10              | 0                  | 10               | 1  | 3
    left
    right
    watermark 15
    joined_pairs 0
    main
      user | left_window_start | left_window_end | right_window_start | right_window_end | ts   | at
"""
BOB = "      bob  | 0                 | 10              | null               | null             | 2    | null\n"
EVE = "      eve  | null              | null            | 0                  | 10               | null | 4\n"


def unmatched(how: How, alone: str) -> Transcript:
    plan = join_plan(TEN, TEN, how=how, lateness=(0, 5 * SECOND))
    return Transcript(f"{how}: what is left alone when it can meet nothing", plan, UNMATCHED + alone)


HOWS = [
    unmatched("inner", ""),
    unmatched("left", BOB),
    unmatched("right", EVE),
    unmatched("full", BOB + EVE),
]

SESSIONS = [
    Transcript(
        "three rows and two in sessions that overlap are six pairs, once both have closed",
        join_plan(GAP, FIVE),
        """
        left
          ts | user
          1  | ann
          8  | ann
          15 | ann
          24 | zoe
        right
          at        | user
          16        | ann
          20        | ann
          24.999999 | yan
        watermark none
        left
          ts        | user
          24.999999 | zoe
        right
        watermark 24
        joined_pairs 0
        windows_closed 0
        left
          ts | user
          25 | zoe
        right
          at | user
          25 | yan
        watermark 24.999999
        joined_pairs 0
        windows_closed 0
        left
        right
        watermark 25
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 1                 | 25              | 16                 | 25               | 1  | 16
          ann  | 1                 | 25              | 16                 | 25               | 1  | 20
          ann  | 1                 | 25              | 16                 | 25               | 8  | 16
          ann  | 1                 | 25              | 16                 | 25               | 8  | 20
          ann  | 1                 | 25              | 16                 | 25               | 15 | 16
          ann  | 1                 | 25              | 16                 | 25               | 15 | 20
        joined_pairs 6
        windows_closed 2
        """,
    ),
    Transcript(
        "the pairs leave when the later of the two closes",
        join_plan(FIVE, GAP),
        """
        left
          ts        | user
          1         | ann
          14.999999 | zoe
        right
          at        | user
          5         | ann
          14.999999 | yan
        left
          ts | user
          15 | zoe
        right
          at | user
          15 | yan
        watermark 14.999999
        joined_pairs 0
        windows_closed 1
        left
        right
        watermark 15
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 1                 | 6               | 5                  | 15               | 1  | 5
        joined_pairs 1
        windows_closed 1
        """,
    ),
    Transcript(
        "sessions bridged by a late row are one, and meet as one",
        join_plan(GAP, GAP, lateness=(20 * SECOND, 0)),
        """
        left
          ts | user
          0  | ann
          20 | ann
          29 | zoe
        right
          at | user
          25 | ann
          29 | yan
        left
          ts | user
          10 | ann
          35 | zoe
        right
          at | user
          35 | yan
        watermark 29
        late_rows 0
        windows_closed 0
        left
          ts | user
          50 | zoe
        right
          at | user
          50 | yan
        watermark 35
        joined_pairs 0
        windows_closed 1
        left
        right
        watermark 50
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 30              | 25                 | 35               | 0  | 25
          ann  | 0                 | 30              | 25                 | 35               | 10 | 25
          ann  | 0                 | 30              | 25                 | 35               | 20 | 25
        joined_pairs 3
        """,
    ),
    Transcript(
        "sessions that just touch meet, whichever is the first",
        join_plan(GAP, GAP),
        """
        left
          ts | user
          0  | ann
          10 | bob
          40 | zoe
        right
          at | user
          10 | ann
          0  | bob
          40 | yan
        left
        right
        watermark 40
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 10                 | 20               | 0  | 10
          bob  | 10                | 20              | 0                  | 10               | 10 | 0
        joined_pairs 2
        windows_closed 4
        """,
    ),
    Transcript(
        "sessions a microsecond apart do not meet",
        join_plan(GAP, GAP, keys=(), how="full"),
        """
        left
          ts
          0
          39.999999
        right
          at
          10.000001
          39.999999
        left
          ts
          40
        right
          at
          40
        watermark 39.999999
        main
          left_window_start | left_window_end | right_window_start | right_window_end | ts   | at
          0                 | 10              | null               | null             | 0    | null
          null              | null            | 10.000001          | 20.000001        | null | 10.000001
        joined_pairs 0
        windows_closed 2
        """,
    ),
    Transcript(
        "a busy key does not hold back a quiet pair",
        join_plan(GAP, GAP),
        """
        left
          ts | user
          1  | ann
          2  | bob
          25 | ann
        right
          at | user
          3  | ann
          4  | bob
          25 | ann
        left
          ts | user
          33 | ann
        right
          at | user
          33 | ann
        watermark 25
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 1                 | 11              | 3                  | 13               | 1  | 3
          bob  | 2                 | 12              | 4                  | 14               | 2  | 4
        joined_pairs 2
        windows_closed 4
        """,
    ),
    Transcript(
        "a session meets every one that it touches, each when both have closed",
        join_plan(GAP, FIVE),
        """
        left
          ts | user
          0  | ann
          8  | ann
          16 | ann
          30 | zoe
        right
          at | user
          1  | ann
          15 | ann
          26 | ann
          27 | ann
          30 | yan
        left
          ts | user
          32 | zoe
        right
          at | user
          32 | yan
        watermark 30
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 26              | 1                  | 6                | 0  | 1
          ann  | 0                 | 26              | 1                  | 6                | 8  | 1
          ann  | 0                 | 26              | 1                  | 6                | 16 | 1
          ann  | 0                 | 26              | 15                 | 20               | 0  | 15
          ann  | 0                 | 26              | 15                 | 20               | 8  | 15
          ann  | 0                 | 26              | 15                 | 20               | 16 | 15
        windows_closed 3
        left
        right
        watermark 32
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 26              | 26                 | 32               | 0  | 26
          ann  | 0                 | 26              | 26                 | 32               | 8  | 26
          ann  | 0                 | 26              | 26                 | 32               | 16 | 26
          ann  | 0                 | 26              | 26                 | 32               | 0  | 27
          ann  | 0                 | 26              | 26                 | 32               | 8  | 27
          ann  | 0                 | 26              | 26                 | 32               | 16 | 27
        windows_closed 1
        """,
    ),
    Transcript(
        "pairs that have left do not leave again when the next session closes",
        join_plan(GAP, FIVE),
        """
        left
          ts | user
          0  | ann
          8  | ann
          16 | ann
          29 | zoe
        right
          at | user
          15 | ann
          26 | ann
          29 | yan
        left
          ts | user
          31 | zoe
        right
          at | user
          31 | yan
        watermark 29
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 26              | 15                 | 20               | 0  | 15
          ann  | 0                 | 26              | 15                 | 20               | 8  | 15
          ann  | 0                 | 26              | 15                 | 20               | 16 | 15
        joined_pairs 3
        left
        right
        watermark 31
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 26              | 26                 | 31               | 0  | 26
          ann  | 0                 | 26              | 26                 | 31               | 8  | 26
          ann  | 0                 | 26              | 26                 | 31               | 16 | 26
        joined_pairs 3
        """,
    ),
    Transcript(
        "a closed session is let go when none that it could meet can come any more",
        join_plan(FIVE, GAP, how="left", lateness=(0, 3 * SECOND)),
        """
        left
          ts        | user
          1         | ann
          18.999999 | zoe
        right
          at        | user
          18.999999 | yan
        left
          ts | user
          19 | zoe
        right
          at | user
          19 | yan
        watermark 18.999999
        windows_closed 1
        left
        right
        watermark 19
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 1                 | 6               | null               | null             | 1  | null
        windows_closed 0
        """,
    ),
    Transcript(
        "a closed session waits for an open one that it meets",
        join_plan(FIVE, GAP, how="full"),
        """
        left
          ts | user
          1  | ann
          20 | zoe
        right
          at | user
          6  | ann
          15 | ann
          20 | yan
        left
          ts | user
          25 | zoe
        right
          at | user
          25 | yan
        watermark 20
        windows_closed 1
        left
        right
        watermark 25
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 1                 | 6               | 6                  | 25               | 1  | 6
          ann  | 1                 | 6               | 6                  | 25               | 1  | 15
        joined_pairs 2
        windows_closed 1
        """,
    ),
    Transcript(
        "rows are late if all that they are tied to has closed; what has closed may still be met",
        join_plan(GAP, GAP, late=(ASIDE, MOVE)),
        """
        left
          ts | user
          0  | ann
          12 | zoe
        right
          at | user
          12 | yan
        left
          ts | user
          1  | ann
        right
          at | user
          8  | ann
          2  | ann
          1  | bob
        watermark 12
        late
          ts | user | late_by | watermark | late_operator                                     | late_window_start | late_window_end | allowed_lateness
          1  | ann  | 11      | 12        | 1 session(10 seconds) × session(10 seconds), left | 1                 | 11              | 0
        late_rows 2
        late_reassigned 1
        windows_closed 1
        left
          ts | user
          13 | bob
          23 | zoe
        right
          at | user
          23 | yan
        watermark 12
        left
        right
        watermark 23
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 0                 | 10              | 2                  | 18               | 0  | 2
          ann  | 0                 | 10              | 2                  | 18               | 0  | 8
          bob  | 13                | 23              | 12                 | 22               | 13 | 12
        joined_pairs 3
        """,
    ),
    Transcript(
        "sessions of a key that is null are made as always and match nothing, nor wait for each other",
        join_plan(GAP, GAP, nulls_match=(False,), how="full"),
        """
        left
          ts | user
          0  | null
          5  | null
          35 | zoe
        right
          at | user
          5  | null
          14 | null
          23 | null
          32 | null
          35 | yan
        left
          ts | user
          36 | zoe
        right
          at | user
          36 | yan
        watermark 35
        main
          user | left_window_start | left_window_end | ts
          null | 0                 | 15              | 0
          null | 0                 | 15              | 5
        windows_closed 1
        joined_pairs 0
        left
        right
        watermark 36
        late_rows 0
        """,
    ),
    Transcript(
        "a session that has grown back over one that had closed is met by itself",
        join_plan(GAP, GAP),
        """
        left
          ts | user
          16 | zoe
        right
          at | user
          6  | ann
          16 | yan
        left
          ts | user
          20 | ann
          30 | zoe
        right
          at | user
          0  | ann
          10 | ann
          17 | ann
          30 | yan
        watermark 16
        late_rows 0
        windows_closed 1
        left
        right
        watermark 30
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          ann  | 20                | 30              | 0                  | 27               | 20 | 0
          ann  | 20                | 30              | 0                  | 27               | 20 | 10
          ann  | 20                | 30              | 0                  | 27               | 20 | 17
        joined_pairs 3
        """,
    ),
    Transcript(
        "where: rows of sessions that meet may still be no pairs",
        join_plan(GAP, GAP, keys=(), how="full", where="price > items"),
        """
        left
          ts | items
          0  | 1
          1  | 5
          40 | 0
        right
          at | price
          2  | 3
          3  | null
          40 | 0
        left
        right
        watermark 40
        main
          left_window_start | left_window_end | right_window_start | right_window_end | ts   | items | at   | price
          0                 | 11              | 2                  | 13               | 0    | 1     | 2    | 3
          0                 | 11              | null               | null             | 1    | 5     | null | null
          null              | null            | 2                  | 13               | null | null  | 3    | null
        joined_pairs 1
        windows_closed 2
        """,
    ),
    Transcript(
        "sessions of limited length meet as they were cut",
        join_plan(session(10 * SECOND, 60 * SECOND), GAP, keys=()),
        """
        left
          ts
          55
          61
          100
        right
          at
          60
          100
        left
        right
        watermark 100
        main
          left_window_start | left_window_end | right_window_start | right_window_end | ts | at
          55                | 60              | 60                 | 70               | 55 | 60
          61                | 71              | 60                 | 70               | 61 | 60
        windows_closed 3
        """,
    ),
]

CHAINED = [
    Transcript(
        "two windowed aggregates meet in one query",
        join_plan(
            TEN,
            TEN,
            feeds=(Derived(CLICKS, "window_start"), Derived(ORDERS, "window_start")),
            how="left",
        ),
        """
        left
          ts | user
          1  | ann
          3  | ann
          5  | bob
          12 | zoe
        right
          at | user
          2  | ann
          12 | yan
        left
          ts | user
          20 | zoe
        right
          at | user
          20 | yan
        watermark 12
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | window_start_left | window_end_left | clicks | window_start_right | window_end_right | orders
          ann  | 0                 | 10              | 0                  | 10               | 0                 | 10              | 2      | 0                  | 10               | 1
        left_rows 2
        right_rows 1
        joined_pairs 1
        windows_closed 0
        rows_in 2
        left
        right
        watermark 20
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | window_start_left | window_end_left | clicks | window_start_right | window_end_right | orders
          bob  | 0                 | 10              | null               | null             | 0                 | 10              | 1      | null               | null             | null
        left_rows 1
        right_rows 1
        windows_closed 2
        """,
    ),
    Transcript(
        "rows meet the results of an operator, and are judged by a watermark as far behind as those are",
        join_plan(TEN, TEN, feeds=(Derived(CLICKS, "window_start"), None)),
        """
        left
          ts | user
          1  | ann
          3  | ann
          12 | zoe
        right
          at | user
          2  | ann
          12 | yan
        left
          ts        | user
          19.999999 | zoe
        right
          at        | user
          8         | ann
          19.999999 | yan
        watermark 12
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | window_start | window_end | clicks | at
          ann  | 0                 | 10              | 0                  | 10               | 0            | 10         | 2      | 2
          ann  | 0                 | 10              | 0                  | 10               | 0            | 10         | 2      | 8
        late_rows 0
        left
          ts | user
          20 | zoe
        right
          at | user
          9  | ann
          20 | yan
        watermark 19.999999
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | window_start | window_end | clicks | at
          ann  | 0                 | 10              | 0                  | 10               | 0            | 10         | 2      | 9
        late_rows 0
        left
        right
          at | user
          9  | ann
        watermark 20
        late_rows 1
        windows_closed 1
        """,
    ),
    Transcript(
        "results that leave because of the watermark meet rows that it is about to let go",
        join_plan(TEN, TEN, feeds=(None, Derived(ORDERS, "window_start")), how="left"),
        """
        left
          ts | user
          1  | ann
          2  | bob
          50 | zoe
        right
          at | user
          2  | ann
          50 | yan
        left
        right
        watermark 50
        main
          user | left_window_start | left_window_end | right_window_start | right_window_end | ts | window_start | window_end | orders
          ann  | 0                 | 10              | 0                  | 10               | 1  | 0            | 10         | 1
          bob  | 0                 | 10              | null               | null             | 2  | null         | null       | null
        joined_pairs 1
        windows_closed 2
        """,
    ),
    Transcript(
        "pairs go on as events, as far behind as they may still come",
        plan_of(
            TWENTY,
            (("pairs", a.Count(None)), ("spend", a.Sum("price"))),
            keys=(),
            feed=Derived(join_plan(TEN, TEN), "ts"),
        ),
        """
        left
          ts | user
          1  | ann
          12 | ann
          15 | zoe
        right
          at | user | price
          2  | ann  | 1
          13 | ann  | 2
          15 | yan  | 8
        left
          ts        | user
          29.999999 | zoe
        right
          at        | user | price
          14        | ann  | 4
          29.999999 | yan  | 8
        watermark 15
        joined_pairs 1
        left
          ts | user
          30 | zoe
        right
          at | user
          30 | yan
        watermark 29.999999
        left
        right
        watermark 30
        main
          window_start | window_end | pairs | spend
          0            | 20         | 3     | 7
        """,
    ),
    Transcript(
        "rows that were left alone go on, too",
        plan_of(
            TEN,
            (("rows", a.Count(None)), ("met", a.Count("price"))),
            keys=(),
            feed=Derived(join_plan(TEN, TEN, how="left"), "left_window_end"),
        ),
        """
        left
          ts | user
          1  | ann
          2  | bob
          20 | zoe
        right
          at | user | price
          3  | ann  | 1
          20 | yan  | 8
        left
        right
        watermark 20
        main
          window_start | window_end | rows | met
          10           | 20         | 2    | 1
        """,
    ),
]

TRANSCRIPTS = [*FIXED_WINDOWS, *HOWS, *SESSIONS, *CHAINED]
