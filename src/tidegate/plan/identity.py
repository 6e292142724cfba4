"""What stored state depends on: two plans of one identity can read each other's checkpoints."""

import hashlib
import json

from tidegate.plan.nodes import Emit
from tidegate.plan.time import render

Identity = dict[str, str]


def identity_of(plan: Emit, buckets: int, state_format: int) -> Identity:
    """The parts of a plan that its state is laid out by, each as text a person can compare.

    Tolerance and late policy are not among them: they may change between runs.
    """
    window = plan.input.input
    types = plan.input.schema
    return {
        "keys": ", ".join(f"{key}: {window.schema.field(key).type}" for key in window.input.keys)
        or "global",
        "window": str(window.window),
        "allowed lateness": render(window.lateness),
        "aggregates": ", ".join(
            f"{name}={type(agg).__module__}.{type(agg).__qualname__} {agg}: {types.field(name).type}"
            for name, agg in plan.input.aggregates
        ),
        "emission": str(plan.emission),
        "buckets": str(buckets),
        "state format": str(state_format),
    }


def fingerprint(identity: Identity) -> str:
    """The identity in sixteen letters, kept in every bucket's directory."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
