"""Options of every stream whose rows are decoded from text."""

from __future__ import annotations

from tidegate.connectors.declaration import Option

PACE = Option(
    "pace", "How long a batch may take: batches then have as many rows as that allows.", "duration"
)
INVALID_FIELDS = Option(
    "invalid_fields",
    "What becomes of a field that is not of its type: it is null, or its row goes to the errors.",
    default="null",
    values=("null", "errors"),
)
