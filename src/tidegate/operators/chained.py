"""A kernel among several: fed by another one it takes in first, closes then, and lies behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate.operators.kernel import Clock, Kernel, Outcome, Parcel, Port, retractions_first
from tidegate.operators.state import BucketState
from tidegate.plan.channels import MAIN
from tidegate.plan.time import render


@dataclass(frozen=True)
class OwnPort:
    """A port of one of several operators: its parcels pass the others, which have ports of that name."""

    port: Port
    name: str

    def pack(self, rows: pa.Table, buckets: Sequence[int]) -> Iterator[Parcel]:
        for parcel in self.port.pack(rows, buckets):
            own = parcel.channel == self.port.name
            yield replace(parcel, channel=self.name) if own else parcel

    def known_as(self, operator: str) -> None:
        self.port.known_as(operator)


class Chained:
    """What the operator above put out because of W came before W.

    So its rows are taken in under the watermark of the batch before, under which none of them can be
    late; after that the watermark moves, less what the operators above may still hold.
    """

    def __init__(
        self,
        kernel: Kernel,
        hold_back: int,
        number: int,
        fed: frozenset[str],
        outlet: str = MAIN,
        *,
        retracts: bool,
    ) -> None:
        self.kernel = kernel
        self.number = number
        self.retracts = retracts
        self.hold_back = hold_back
        self.outlet = outlet
        self._port_names = {f"{number}.{port.name}": port.name for port in kernel.ports}
        self.inputs = frozenset(self._port_names)
        #: The inputs that other operators feed; the others have rows of sources, judged under W.
        self.fed = fed

    @property
    def ports(self) -> tuple[Port, ...]:
        names = zip(self.kernel.ports, self._port_names, strict=True)
        return tuple(OwnPort(port, name) for port, name in names)

    def step(self, state: BucketState, inputs: Sequence[Parcel], clock: Clock) -> Outcome:
        own = [replace(parcel, channel=self._port_names[parcel.channel]) for parcel in inputs]
        before = [parcel for parcel in own if parcel.channel in self.fed]
        others = [parcel for parcel in own if parcel.channel not in self.fed]
        out = self.kernel.step(state, before, Clock(None, clock.now)) if before else Outcome()
        if clock.watermark is not None or others or not before:
            reached = None if clock.watermark is None else clock.watermark - self.hold_back
            out = out.then(self.kernel.step(state, others, Clock(reached, clock.now)))
        if self.retracts:
            out.tables = retractions_first(out.tables)
        out.tables = [(self.outlet if name == MAIN else name, sent) for name, sent in out.tables]
        if out.due is not None:
            out.due += self.hold_back
        # Each operator of a chain holds something of its own.
        out.gauges = {f"{name}.{self.number}": held for name, held in out.gauges.items()}
        return out

    def stages(self) -> list[str]:
        first, *others = self.kernel.stages()
        if not self.fed:
            return [first, *others]
        return [f"{first} behind the sources by {render(self.hold_back)}", *others]

    def unpack(self, tables: Sequence[pa.Table]) -> pa.Table:
        return self.kernel.unpack(tables)
