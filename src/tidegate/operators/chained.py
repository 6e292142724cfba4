"""A kernel among several: fed by another one it takes in first, closes then, and lies behind."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.operators.kernel import Clock, Kernel, Outcome, Port, retractions_first
from tidegate.operators.messages import Message
from tidegate.operators.state import BucketState
from tidegate.plan.channels import MAIN
from tidegate.plan.time import render


class Chained:
    """What the operator above put out because of W came before W.

    So its rows are taken in under the watermark of the batch before, under which none of them can be
    late; after that the watermark moves, less what the operators above may still hold.
    """

    def __init__(
        self,
        kernel: Kernel,
        hold_back: int,
        fed: frozenset[str],
        outlet: str = MAIN,
        *,
        retracts: bool,
    ) -> None:
        self.kernel = kernel
        self.retracts = retracts
        self.hold_back = hold_back
        self.outlet = outlet
        #: The inputs that other operators feed; the others have rows of sources, judged under W.
        self.fed = fed

    @property
    def ports(self) -> tuple[Port, ...]:
        return self.kernel.ports

    def step(self, state: BucketState, inputs: Sequence[Message], clock: Clock) -> Outcome:
        before = [message for message in inputs if message.name in self.fed]
        others = [message for message in inputs if message.name not in self.fed]
        out = self.kernel.step(state, before, Clock(None, clock.now)) if before else Outcome()
        if clock.watermark is not None or others or not before:
            reached = None if clock.watermark is None else clock.watermark - self.hold_back
            out = out.then(self.kernel.step(state, others, Clock(reached, clock.now)))
        if self.retracts:
            out.tables = retractions_first(out.tables)
        out.tables = [(self.outlet if name == MAIN else name, sent) for name, sent in out.tables]
        if out.due is not None:
            out.due += self.hold_back
        return out

    def stages(self) -> list[str]:
        first, *others = self.kernel.stages()
        if not self.fed:
            return [first, *others]
        return [f"{first} behind the sources by {render(self.hold_back)}", *others]

    def unpack(self, tables: Sequence[pa.Table]) -> pa.Table:
        return self.kernel.unpack(tables)
