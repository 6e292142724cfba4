"""A plan compiled: who reads whom, how far behind, and where rows leave."""

from dataclasses import FrozenInstanceError

import pytest

from tests.support.plans import (
    LEFT_ROWS,
    RIGHT_ROWS,
    SECOND,
    dedupe_plan,
    hopping,
    join_plan,
    logical_plan,
)
from tidegate.dataflow import compile
from tidegate.plan.nodes import Together
from tidegate.plan.policies import SideOutput
from tidegate.plan.sources import Derived, Source, Union
from tidegate.plan.time import Micros

TEN = hopping(10 * SECOND)
CLICKS = Source(LEFT_ROWS, "ts", Micros(0), number=0)
ORDERS = Source(RIGHT_ROWS, "at", Micros(0), number=1)


def test_one_operator_reads_its_source_and_leaves_by_main():
    dataflow = compile(logical_plan(TEN, late=SideOutput("late")))
    [vertex] = dataflow.vertices
    [edge] = vertex.edges
    assert (vertex.name, vertex.delay, vertex.channel) == ("1 tumbling(10 seconds)", 0, "main")
    assert (edge.name, edge.upstream, edge.watermark_triggered) == (vertex.name, (0,), False)
    assert list(dataflow.channels) == ["main", "errors", "late"]
    assert dataflow.late_channels == {"late"}
    assert dataflow.outputs == {"main": vertex}


def test_the_sources_of_a_union_are_told_apart():
    dataflow = compile(logical_plan(TEN, feed=Union((CLICKS, CLICKS))))
    assert dataflow.sources == (CLICKS, CLICKS)
    assert dataflow.vertices[0].edges[0].sources == (0, 1)


def test_the_inputs_of_a_join_are_named_by_their_sides():
    dataflow = compile(join_plan(TEN, TEN))
    assert [edge.name for edge in dataflow.vertices[0].edges] == [
        "1 tumbling(10 seconds) × tumbling(10 seconds), left",
        "1 tumbling(10 seconds) × tumbling(10 seconds), right",
    ]
    assert [edge.upstream for edge in dataflow.vertices[0].edges] == [(0,), (1,)]


def test_what_branches_share_is_one_vertex_and_is_read_once():
    distinct = dedupe_plan(SECOND, feed=CLICKS)
    plan = Together(
        (
            ("windows", logical_plan(TEN, feed=Derived(distinct, "ts"))),
            ("rows", distinct),
            ("orders", logical_plan(TEN, feed=ORDERS)),
        )
    )
    dataflow = compile(plan)
    assert [(v.name, v.channel) for v in dataflow.vertices] == [
        ("1 dedupe", "rows"),
        ("2 tumbling(10 seconds)", "windows"),
        ("3 tumbling(10 seconds)", "orders"),
    ]
    assert list(dataflow.outputs) == ["windows", "rows", "orders"]
    assert [dataflow.first_read_by(vertex) for vertex in dataflow.vertices] == [[0], [], [1]]
    assert "duplicates_filtered" in dataflow.counters
    assert dataflow.counters.count("late_rows") == 1


def test_results_that_the_watermark_triggers_say_so():
    first = logical_plan(TEN)
    [_, second] = compile(logical_plan(TEN, keys=(), feed=Derived(first, "window_start"))).vertices
    [edge] = second.edges
    assert edge.watermark_triggered
    assert edge.vertex == 0
    assert second.delay == 0


def test_a_dataflow_is_a_value():
    dataflow = compile(logical_plan(TEN))
    assert dataflow == compile(logical_plan(TEN))
    with pytest.raises(FrozenInstanceError):
        dataflow.vertices = ()  # type: ignore[misc]
