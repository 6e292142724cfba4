"""Aggregates over windows. Nulls are ignored. If all values are null, the result is null, a count 0."""

from tidegate.kernels.public_aggregates import *  # noqa: F403 - each class is a public function
