"""`tidegate repair CHECKPOINT`: back to the last version of the state that is whole."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.cli.failures import OK
from tidegate.cli.session import end_on_sigterm, session
from tidegate.errors import StateError

if TYPE_CHECKING:
    from tidegate.spark.checkpoint.ownership import Owner
    from tidegate.spark.checkpoint.repair import Repair


def run(arguments: Namespace) -> int:
    end_on_sigterm()
    if not (arguments.checkpoint / "tidegate.json").is_file():  # told before Spark is started
        folder = arguments.checkpoint
        raise StateError(f"{folder} is no checkpoint of tidegate: there is no tidegate.json in it")
    from tidegate.connectors import location
    from tidegate.spark.checkpoint.metadata import refuse_drained
    from tidegate.spark.checkpoint.ownership import Ownership, owner_of

    checkpoint = location(str(arguments.checkpoint))
    refuse_drained(checkpoint)  # no start would replay anything
    owner = owner_of(checkpoint)
    _refuse_while_alive(owner)
    with session(arguments) as spark:
        from tidegate.spark.checkpoint.repair import carry_out, planned

        repair, problems = planned(spark, checkpoint, arguments.to)
    if repair is None:
        print("the state is whole: there is nothing to repair")
        return OK
    print("\n".join(_told(checkpoint, repair, problems, owner)))
    if arguments.dry_run:
        print("nothing was changed (--dry-run)")
        return OK
    Ownership.next(checkpoint).take()  # a driver on another machine may live: it is fenced off
    moved = carry_out(checkpoint, repair)
    counts = ", ".join(f"{count} {kind}" for kind, count in moved.items())
    print(f"moved aside: {counts}; kept in {repair.kept}")
    return OK


def _refuse_while_alive(owner: Owner | None) -> None:
    if owner is not None and owner.is_alive:
        raise StateError(
            f"{owner}, which started the query at {owner.since}, still runs: end it, and repair then"
        )


def _told(checkpoint: str, repair: Repair, problems: list[str], owner: Owner | None) -> Iterator[str]:
    from tidegate.spark.checkpoint.repair import offsets_of, taken_by

    yield from problems
    after = f"after batch {repair.version - 1}" if repair.version else "before any batch"
    yield f"back to version {repair.version}, {after}"
    if not repair.replayed:
        yield "no batch is replayed"
        return
    yield f"the next start replays batches {repair.version} to {repair.until}, with the same rows:"
    begin = offsets_of(checkpoint, repair.version - 1)
    for number, end in enumerate(offsets_of(checkpoint, repair.until)):
        start = begin[number] if number < len(begin) else "its beginning"
        yield f"  source {number + 1}: from {start} to {end}"
    for channel, sink in taken_by(owner).items():
        yield f"  sink of {channel}: {sink}"
    yield "  sinks of files and tables know batches by number, and leave out those that they have"
