"""Steps that follow each other, and packing behind them, share one crossing from Spark to Python.

So does the reading itself, where whoever reads can pack.

Before: Step[filter b] ← Step[map a] ← Events[…]
After:  Fused[map a, filter b] ← Events[…]
"""

from dataclasses import replace

from tidegate.plan.feeds import Feed, Source, Stepped, Union, origin, steps_of
from tidegate.plan.inlets import Inlet
from tidegate.plan.nodes import Output
from tidegate.plan.rewrite import with_inlets
from tidegate.plan.steps import Fusion, Step


def fuse_steps(plan: Output, fusion: Fusion) -> Output:
    def fused(inlet: Inlet) -> Inlet:
        return replace(inlet, keyed=replace(inlet.keyed, input=_fused(inlet.feed, fusion)))

    return with_inlets(plan, fused)


def _fused(feed: Feed, fusion: Fusion) -> Feed:
    crossings: list[tuple[Step, ...]] = []
    for step in steps_of(feed):
        if crossings and fusion.joins(crossings[-1], step):
            crossings[-1] += (step,)
        else:
            crossings.append((step,))
    rows: Feed = origin(feed)
    if not fusion.read:
        rows = _read_apart(rows)
    for number, steps in enumerate(crossings, 1):
        rows = Stepped(rows, steps, packed=fusion.pack and number == len(crossings))
    return rows


def _read_apart(rows: Feed) -> Feed:
    if isinstance(rows, Union):
        return Union(tuple(replace(source, packs=False) for source in rows.inputs))
    return replace(rows, packs=False) if isinstance(rows, Source) else rows
