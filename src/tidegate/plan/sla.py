"""What a stream is allowed: how late its rows may come, how unevenly, and how many of them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import lcm

from tidegate.errors import PlanError, did_you_mean
from tidegate.plan.identity import Values, plain
from tidegate.plan.time import Duration, Micros, micros, render

Number = int | float | Decimal | Fraction

#: Why a row is not admitted, in the order in which rows are judged.
REASONS = LAG, JITTER, RATE = ("lag", "jitter", "rate")

_SECOND = 1_000_000

#: Levels of buckets are whole numbers up to this one: sums over many rows stay exact in 64 bits.
LARGEST_LEVEL = 1 << 47

#: How finely numbers are read: as fractions with denominators up to the first of these that fits.
_PRECISIONS = tuple(10**digits for digits in range(6, -1, -1))


@dataclass(frozen=True)
class Class:
    """What streams of a class are allowed if nothing else is said."""

    max_rate: int
    capacity: int
    max_lag: Micros


CLASSES = {
    "bronze": Class(max_rate=1, capacity=5, max_lag=Micros(5 * _SECOND)),
    "silver": Class(max_rate=5, capacity=20, max_lag=Micros(2 * _SECOND)),
    "gold": Class(max_rate=20, capacity=50, max_lag=Micros(_SECOND // 2)),
    "platinum": Class(max_rate=100, capacity=200, max_lag=Micros(_SECOND // 10)),
}


@dataclass(frozen=True)
class Budget:
    """A token bucket in whole units, `unit` of which are a token, so that all sums are exact."""

    unit: int
    #: What flows in each microsecond.
    refill: int
    capacity: int
    #: What a row takes.
    cost: int

    @property
    def time_to_fill(self) -> int:
        """How many microseconds an empty bucket needs."""
        return -(-self.capacity // self.refill)


@dataclass(frozen=True)
class Sla:
    """The limits of each stream; `arrival` is the column that says when rows came.

    A stream that is too much for one place is split into `shards`, each with its share of the budget.
    """

    max_rate: Fraction
    capacity: Fraction
    token_cost: Fraction = Fraction(1)
    max_lag: Micros | None = None
    jitter_budget: Micros | None = None
    arrival: str | None = None
    shards: int = 1

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise PlanError(f"sla(shards={self.shards}): a stream has one shard at least")
        if self.capacity / self.shards < self.token_cost:
            share = "a shard's share of " if self.shards > 1 else ""
            raise PlanError(
                f"sla(): {share}capacity={_shown(self.capacity)} is less than "
                f"token_cost={_shown(self.token_cost)}, so no row could ever be admitted"
            )
        if self.shards > 1 and self.jitter_budget is not None:
            raise PlanError(
                "sla(jitter_budget=…) with shards: no shard sees all arrivals of a stream, so none can "
                "tell how far apart they are; leave one of them out"
            )
        self.budget()

    def budget(self) -> Budget:
        """What each shard may spend: as exactly as whole numbers of a size that adds up allow."""
        for precision in _PRECISIONS:
            refill, capacity, cost = (
                _near(number, precision)
                for number in (
                    self.max_rate / self.shards / _SECOND,
                    self.capacity / self.shards,
                    self.token_cost,
                )
            )
            unit = lcm(refill.denominator, capacity.denominator, cost.denominator)
            if capacity * unit <= LARGEST_LEVEL:
                most = int(capacity * unit)
                # A bucket that is full within a microsecond is full, and rounding must not make rows
                # cost more than there can be.
                return Budget(unit, min(int(refill * unit), most), most, min(int(cost * unit), most))
        raise PlanError(
            f"sla(max_rate={_shown(self.max_rate)}, capacity={_shown(self.capacity)}): "
            "further apart than can be counted exactly; take a smaller capacity or a higher rate"
        )

    def settings(self) -> Values:
        """The limits: what is kept of a stream does not depend on them. Fractions go by their text."""
        return {name: plain(limit) for name, limit in vars(self).items() if name != "shards"}

    def __str__(self) -> str:
        parts = [f"max_rate={_shown(self.max_rate)}", f"capacity={_shown(self.capacity)}"]
        if self.token_cost != 1:
            parts.append(f"token_cost={_shown(self.token_cost)}")
        for name, limit in (("max_lag", self.max_lag), ("jitter_budget", self.jitter_budget)):
            if limit is not None:
                parts.append(f"{name}={render(limit)}")
        if self.arrival is not None:
            parts.append(f"arrival={self.arrival}")
        if self.shards > 1:
            parts.append(f"shards={self.shards}")
        return f"sla({', '.join(parts)})"

    __repr__ = __str__


def declare_sla(  # noqa: PLR0913
    sla_class: str | None = None,
    *,
    max_rate: Number | None = None,
    capacity: Number | None = None,
    token_cost: Number = 1,
    max_lag: Duration | None = None,
    jitter_budget: Duration | None = None,
    arrival: str | None = None,
    shards: int = 1,
) -> Sla:
    """The limits of each stream: those of a class, and explicit values that override them.

    Classes are `bronze`, `silver`, `gold` and `platinum`. `max_rate` is rows per second, and
    `capacity` the largest burst. `max_lag` is the largest age of a row on arrival, and `jitter_budget`
    the longest pause between two rows. `arrival` names the column with the arrival time of a row; the
    default is the time of its batch.

    >>> print(tg.sla("gold", max_lag="1 hour"))
    sla(max_rate=20, capacity=50, max_lag=1 hour)
    """
    if sla_class is not None and sla_class not in CLASSES:
        raise PlanError(f"sla({sla_class!r}): no such class; {did_you_mean(str(sla_class), CLASSES)}")
    base = None if sla_class is None else CLASSES[sla_class]
    if base is not None:
        max_rate = base.max_rate if max_rate is None else max_rate
        capacity = base.capacity if capacity is None else capacity
    if max_rate is None or capacity is None:
        raise PlanError("sla() without a class needs both max_rate and capacity, such as sla('bronze')")
    lag = None if base is None else base.max_lag
    return Sla(
        _positive(max_rate, "max_rate"),
        _positive(capacity, "capacity"),
        _positive(token_cost, "token_cost"),
        lag if max_lag is None else micros(max_lag, "sla(max_lag)", zero=True),
        None if jitter_budget is None else micros(jitter_budget, "sla(jitter_budget)", zero=True),
        arrival,
        shards,
    )


def _positive(number: Number, name: str) -> Fraction:
    try:
        value = Fraction(
            str(number)
        )  # the decimal that was written, not the binary number nearest to it
    except ValueError:
        value = Fraction(0)
    if value <= 0:
        raise PlanError(f"sla({name}={number!r}) must be a number greater than zero")
    return value


def _near(value: Fraction, precision: int) -> Fraction:
    """The value, or a fraction near it; small values are as exact as large ones."""
    if value < 1:
        return 1 / (1 / value).limit_denominator(precision)
    return value.limit_denominator(precision)


def _shown(value: Fraction) -> str:
    return f"{float(value):g}"
