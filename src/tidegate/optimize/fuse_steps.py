"""Steps that follow each other, and packing behind them, share one Python stage.

So does the reading itself, where whoever reads can pack.

Before: Step[filter b] ← Step[map a] ← Events[…]
After:  Fused[map a, filter b] ← Events[…]
"""

from dataclasses import replace

from tidegate.plan.nodes import AnyOperator
from tidegate.plan.sources import Stepped, Upstream
from tidegate.plan.steps import Fusion, Step


def fuse_steps(plan: AnyOperator, fusion: Fusion) -> AnyOperator:
    if not fusion.read:
        plan = plan.with_sources(lambda source: replace(source, packs=False))
    return plan.map_inputs(lambda one: one.through(_fused(one.upstream, fusion)))


def _fused(upstream: Upstream, fusion: Fusion) -> Upstream:
    stages: list[tuple[Step, ...]] = []
    for step in upstream.steps_taken:
        if stages and fusion.joins(stages[-1], step):
            stages[-1] += (step,)
        else:
            stages.append((step,))
    rows: Upstream = upstream.origin
    for number, steps in enumerate(stages, 1):
        rows = Stepped(rows, steps, packed=fusion.pack and number == len(stages))
    return rows
