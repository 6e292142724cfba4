"""Steps that follow each other, and packing behind them, share one crossing from Spark to Python.

Before: Step[filter b] ← Step[map a] ← Events[…]
After:  Fused[map a, filter b] ← Events[…]
"""

from dataclasses import replace

from tidegate.plan.feeds import Feed, Stepped, origin, steps_of
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
    for number, steps in enumerate(crossings, 1):
        rows = Stepped(rows, steps, packed=fusion.pack and number == len(crossings))
    return rows
