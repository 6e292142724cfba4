"""Sinks for channels, `tg.sinks`. Any function `(rows: DataFrame, batch_id)` works too."""

from tidegate.connectors.registry import *  # noqa: F403 - each connector brings its own functions
