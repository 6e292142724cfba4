"""`tidegate state CHECKPOINT`: what is open, of what size, and what falls due next; or a snapshot."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidegate.cli.failures import OK
from tidegate.cli.session import end_on_sigterm, session
from tidegate.cli.views import size
from tidegate.dataflow.identity import lines
from tidegate.errors import StateError

if TYPE_CHECKING:
    from tidegate.spark.checkpoint.state_summary import OperatorState


def run(arguments: Namespace) -> int:
    end_on_sigterm()
    checkpoint = arguments.checkpoint
    if not (checkpoint / "tidegate.json").is_file():  # told before Spark is started
        raise StateError(f"{checkpoint} is no checkpoint of tidegate: there is no tidegate.json in it")
    if arguments.export is not None:
        return _export(arguments)
    states = _noted(str(checkpoint)) or _read(arguments)
    if arguments.json:
        print(json.dumps([_values(state) for state in states], indent=2))
    else:
        texts = [_text(number, state) for number, state in enumerate(states, 1)]
        told = [*texts, *_as_of(states), *_drained(str(checkpoint))]
        print("\n\n".join(told) or "the query keeps nothing")
    return OK


def _export(arguments: Namespace) -> int:
    with session(arguments) as spark:
        from tidegate.spark.checkpoint.inspection import snapshot_of

        exported = snapshot_of(spark, str(arguments.checkpoint))
    arguments.export.write_bytes(exported)
    print(f"{len(exported):,} bytes in {arguments.export}")
    return OK


def _noted(checkpoint: str) -> list[OperatorState] | None:
    """What the query has written down after its last batch, if that is all there is to know."""
    from tidegate.connectors import location
    from tidegate.spark.checkpoint.metadata import last_batch, stored_identity
    from tidegate.spark.checkpoint.state_summary import summary_of

    place = location(checkpoint)
    identity = stored_identity(place)
    return None if identity is None else summary_of(place, identity, last_batch(place))


def _read(arguments: Namespace) -> list[OperatorState]:
    """What Spark finds in the stored state."""
    with session(arguments) as spark:
        from tidegate.spark.checkpoint.inspection import states_of

        return states_of(spark, str(arguments.checkpoint))


def _as_of(states: list[OperatorState]) -> list[str]:
    return [f"after batch {states[0].batch}"] if states else []


def _drained(checkpoint: str) -> list[str]:
    """What is stored of a drained query has been emitted."""
    from tidegate.connectors import location
    from tidegate.spark.checkpoint.metadata import Drained

    drained = Drained.of(location(checkpoint))
    if drained is None:
        return []
    if not drained.done:
        return ["a drain was interrupted: the next start completes it"]
    return [f"drained at {drained.began}, with batch {drained.batch}: the checkpoint is finished"]


def _values(state: OperatorState) -> dict[str, Any]:
    times = {"watermark": _instant(state.watermark), "next_due": _instant(state.next_due)}
    return vars(state) | times


def _text(number: int, state: OperatorState) -> str:
    told = [
        f"operator {number}: {state.identity['operator']}",
        *(f"  {line}" for line in lines(state.identity)),
        f"  open: {state.open:,}",
        f"  keys in state: {state.keys:,}",
        f"  size: {size(state.bytes)} in {state.pages:,} pages of {state.buckets:,} buckets",
        f"  watermark: {_instant(state.watermark) or 'none yet'}",
        f"  next due: {_instant(state.next_due) or 'nothing'}",
    ]
    return "\n".join(told)


def _instant(time: int | None) -> str | None:
    if time is None:
        return None
    return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time)).isoformat()
