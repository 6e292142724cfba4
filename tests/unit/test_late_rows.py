"""What late rows tell: who took them for late, which window had closed, and how much was allowed."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.dataflow import compile
from tidegate.errors import TidegateWarning
from tidegate.plan.nodes import Plan
from tidegate.testing import DryRun, Stream, at

CLICKS = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("user", pa.string()), ("pause", pa.duration("us"))]
)
LATE = tg.late.side_output("late")


def clicks(tolerance: str = "1 millisecond") -> Any:
    return tg.events(Stream(CLICKS), time="ts", tolerance=tolerance)


def told(program: Any, *batches: str | tuple[str, str]) -> list[dict[str, Any]]:
    """What the late rows of all batches say beside their own columns."""
    run, late = DryRun(program), []
    for batch in batches:
        given = (batch,) if isinstance(batch, str) else batch
        late += run.batch(*given).channels.get("late", [])
    own = {"late_operator", "late_window_start", "late_window_end", "allowed_lateness"}
    return [{name: value for name, value in row.items() if name in own} for row in late]


def row_of(operator: str, start: Any, end: Any, lateness: float = 0) -> dict[str, Any]:
    return {
        "late_operator": operator,
        "late_window_start": start,
        "late_window_end": end,
        "allowed_lateness": timedelta(seconds=lateness),
    }


def test_a_tumbling_window_that_had_closed_is_named() -> None:
    counts = clicks().window(tg.tumbling("10 s"), allowed_lateness="5 s", late=LATE).agg(n=tg.count())
    assert told(counts, "ts | user \n 40 | ann", "ts | user \n 12 | bob") == [
        row_of("1 tumbling(10 seconds)", at(10), at(20), 5)
    ]


def test_of_hopping_windows_the_last_to_close_is_named() -> None:
    hops = clicks().window(tg.hopping("25 s", "10 s"), late=LATE).agg(n=tg.count())
    assert told(hops, "ts | user \n 90 | ann", "ts | user \n 3 | bob \n 19 | cid") == [
        row_of("1 hopping(25 seconds, 10 seconds)", at(0), at(25)),
        row_of("1 hopping(25 seconds, 10 seconds)", at(10), at(35)),
    ]


def test_final_windows_allow_no_lateness() -> None:
    windows = clicks().window(tg.tumbling("10 s"), allowed_lateness="1 hour", late=LATE)
    final = windows.agg(n=tg.count()).emit(tg.emit.final())
    assert told(final, "ts | user \n 40 | ann", "ts | user \n 12 | bob") == [
        row_of("1 tumbling(10 seconds)", at(10), at(20))
    ]


@pytest.mark.parametrize("window", [tg.session("5 s"), tg.session(gap_column="pause")])
def test_late_rows_name_the_session_that_they_would_have_formed(window: Any) -> None:
    """Rows of one batch that touch would have formed one; another key, or a longer pause, others."""
    sessions = clicks().key_by("user").window(window, allowed_lateness="2 s", late=LATE)
    rows = "ts | user | pause \n 10 | ann | 5 \n 20 | ann | 5 \n 14 | ann | 5 \n 14 | bob | 5"
    closing = sessions.agg(n=tg.count()).emit(tg.emit.on_window_close())
    late = told(closing, "ts | user | pause \n 90 | ann | 5", rows)
    own = sorted((row["late_window_start"], row["late_window_end"]) for row in late)
    assert own == [(at(10), at(19)), (at(10), at(19)), (at(14), at(19)), (at(20), at(25))]
    assert {row["late_operator"] for row in late} == {f"1 {window}"}
    assert {row["allowed_lateness"] for row in late} == {timedelta(seconds=2)}


@pytest.mark.parametrize("lookahead", [None, "5 s"])
def test_around_rows_and_in_order_there_is_no_window(lookahead: str | None) -> None:
    sliding = clicks().window(tg.sliding("10 s", lookahead), late=LATE).agg(n=tg.count())
    batches = "ts | user \n 40 | ann", "ts | user \n 12 | bob"
    [row] = told(sliding, *batches)
    name = "sliding(10 seconds)" if lookahead is None else "sliding(10 seconds, 5 seconds)"
    assert row == row_of(f"1 {name}", None, None)
    assert told(clicks().reorder(late=LATE), *batches) == [row_of("1 reorder", None, None)]


def test_duplicates_are_checked_for_as_long_as_is_said() -> None:
    first = clicks().dedupe(on="user", within="20 s", late=LATE)
    assert told(first, "ts | user \n 40 | ann", "ts | user \n 12 | bob") == [
        row_of("1 dedupe", None, None, 20)
    ]


def test_joins_name_the_side() -> None:
    left = clicks().key_by("user").window(tg.tumbling("10 s"), late=LATE)
    right = clicks().key_by("user").window(tg.hopping("20 s", "10 s"), allowed_lateness="5 s", late=LATE)
    batches = ("ts | user \n 90 | ann",) * 2, ("ts | user \n 12 | ann", "ts | user \n 3 | ann")
    name = "1 tumbling(10 seconds) × hopping(20 seconds, 10 seconds)"
    assert told(left.join(right), *batches) == [
        row_of(f"{name}, left", at(10), at(20)),
        row_of(f"{name}, right", at(0), at(20), 5),
    ]


def test_joins_of_sessions_name_the_session_of_the_side() -> None:
    sides = [clicks().key_by("user").window(tg.session(gap), late=LATE) for gap in ("5 s", "8 s")]
    late = "ts | user \n 12 | ann \n 15 | ann"
    batches = ("ts | user \n 90 | ann",) * 2, (late, late)
    name = "1 session(5 seconds) × session(8 seconds)"
    assert told(sides[0].join(sides[1]), *batches) == [
        *[row_of(f"{name}, left", at(12), at(20))] * 2,
        *[row_of(f"{name}, right", at(12), at(23))] * 2,
    ]


def test_operators_that_share_a_channel_are_told_apart() -> None:
    rows = clicks()
    minutes = rows.window(tg.tumbling("10 s"), late=LATE).agg(n=tg.count())
    in_order = rows.reorder(late=LATE)
    late = told(
        tg.together(minutes=minutes, in_order=in_order), "ts | user \n 40 | ann", "ts | user \n 12 | bob"
    )
    assert late == [row_of("1 tumbling(10 seconds)", at(10), at(20)), row_of("2 reorder", None, None)]


@pytest.mark.parametrize(
    "name", ["late_by", "watermark", "late_operator", "late_window_start", "allowed_lateness"]
)
def test_a_column_of_that_name_is_refused(name: str) -> None:
    rows = tg.events(Stream(CLICKS.append(pa.field(name, pa.string()))), time="ts")
    with pytest.raises(tg.errors.PlanError, match=f"the late channel adds '{name}'"):
        rows.window(tg.tumbling("10 s"), late=LATE)


# -- rows at the watermark ----------------------------------------------------------------------


def sliding(rows: Any, **more: Any) -> Any:
    return rows.window(tg.sliding("10 s"), **more)


def in_order(rows: Any, **more: Any) -> Any:
    return rows.reorder(**more)


@pytest.mark.parametrize(
    ("add", "name"), [(sliding, r"sliding\(10 seconds\)"), (in_order, r"reorder\(\)")]
)
def test_without_a_tolerance_who_drops_rows_at_the_watermark_says_so(add: Any, name: str) -> None:
    with pytest.warns(TidegateWarning, match=name) as caught:
        add(clicks("0 s"))
    [warning] = caught
    assert warning.filename == __file__, "it points at the line of the program"
    assert "are dropped" in str(warning.message)
    assert "'1 millisecond'" in str(warning.message)
    assert "late_rows_at_watermark" in str(warning.message)


def test_it_says_where_they_go_instead() -> None:
    with pytest.warns(TidegateWarning, match="go to the channel 'late'"):
        clicks("0 s").key_by("user").reorder(late=LATE)


def test_one_source_without_a_tolerance_is_enough() -> None:
    with pytest.warns(TidegateWarning):
        clicks("1 s").union(clicks("0 s")).reorder()


def test_who_loses_nothing_is_told_nothing() -> None:
    """Tolerance, moved rows, results that the watermark makes due, the time rows come at."""
    clicks("1 us").reorder()
    clicks("0 s").reorder(late=tg.late.reassign("1 s"))
    clicks("0 s").dedupe(on="user", within="1 us")
    clicks("0 s").window(tg.tumbling("10 s"))
    results = clicks("0 s").window(tg.tumbling("10 s")).agg(n=tg.count())
    results.events(time="window_end").reorder()
    tg.events(Stream(CLICKS), time=tg.processing_time()).reorder()


TIES = "ts | user \n 40 | ann", "ts | user \n 40 | bob \n 40 | cid \n 39 | dan"


def counted(program: Any) -> list[tuple[int, int]]:
    """Late rows of each batch, and how many of them lie at the watermark."""
    run = DryRun(program)
    counts = [run.batch(batch).counts for batch in TIES]
    return [(one["late_rows"], one["late_rows_at_watermark"]) for one in counts]


@pytest.mark.parametrize("add", [in_order, lambda rows: sliding(rows).agg(n=tg.count())])
def test_rows_at_the_watermark_are_counted_and_a_millisecond_keeps_them(add: Any) -> None:
    with pytest.warns(TidegateWarning):
        program = add(clicks("0 s"))
    assert counted(program) == [(0, 0), (3, 2)]
    assert counted(add(clicks("1 millisecond"))) == [(0, 0), (1, 0)]
    assert counted(add(clicks("1 microsecond"))) == [(0, 0), (1, 0)], "Spark rounds up"


def test_the_id_of_a_row_at_the_watermark_is_still_known() -> None:
    """What is remembered for any time at all is remembered at the watermark: no duplicate, not late."""
    run = DryRun(clicks("0 s").dedupe(on=["ts", "user"], within="1 microsecond"))
    counts = [run.batch(batch).counts for batch in TIES]
    assert [one["late_rows"] for one in counts] == [0, 1]
    assert counts[1]["late_rows_at_watermark"] == 0


def plan_of(program: Any) -> Plan:
    plan: Plan = program.node
    return plan


def test_the_same_is_said_of_whole_plans() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TidegateWarning)
        both = tg.together(
            a=clicks("0 s").reorder(), b=sliding(clicks("0 s")).agg(n=tg.count()), c=clicks().reorder()
        )
    found = [one.tie_warning for one in compile(plan_of(both)).operators]
    warned = [text.split(" with ")[0] for text in found if text is not None]
    assert warned == ["reorder()", "sliding(10 seconds)"]
    minutes = clicks("0 s").window(tg.tumbling("1 s")).agg(n=tg.count())
    assert [one.tie_warning for one in compile(plan_of(minutes)).operators] == [None]
