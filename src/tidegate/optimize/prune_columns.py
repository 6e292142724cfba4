"""Read only the columns that keys, windows and aggregates need.

Before: Events[columns=(ts, user, price, agent, referrer)]
After:  Events[columns=(ts, user, price)]

Where rows themselves go on, around a window each, in pairs or to a side output, every column stays:
pruning there would silently cut what users see. What removes duplicates needs the id besides.
"""

from dataclasses import replace

from tidegate.plan.feeds import Derived, Feed, Source, Stepped, Union
from tidegate.plan.nodes import Output
from tidegate.plan.passages import Dedupe
from tidegate.plan.policies import SideOutput
from tidegate.plan.rewrite import with_feed
from tidegate.plan.windowing import Emit


def prune_columns(plan: Output) -> Output:
    if not isinstance(plan, Emit) or plan.by_row or isinstance(plan.late, SideOutput):
        return plan
    return with_feed(plan, _reading(plan.feed, _read_by(plan)))


def _read_by(plan: Emit) -> set[str | None]:
    aggregated = [aggregate.column for _, aggregate in plan.input.aggregates]
    return {plan.feed.time, *plan.keyed.keys, plan.windowed.gap_column, *aggregated}


def _reading(feed: Feed, read: set[str | None]) -> Feed:
    if isinstance(feed, Stepped):
        return feed  # what a function reads is its own affair
    if isinstance(feed, Derived):
        below = feed.input
        if not isinstance(below, Dedupe) or isinstance(below.late, SideOutput):
            return feed
        own = {below.feed.time, *below.keyed.keys}
        return Derived(with_feed(below, _reading(below.feed, read | own)), feed.time)
    if isinstance(feed, Union):
        return Union(tuple(_pruned(source, read) for source in feed.inputs))
    return _pruned(feed, read)


def _pruned(source: Source, read: set[str | None]) -> Source:
    return replace(source, columns=tuple(name for name in source.row_schema.names if name in read))
