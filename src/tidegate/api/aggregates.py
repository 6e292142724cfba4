"""Aggregates over windows. Nulls are ignored; over nothing but nulls the result is null, a count 0."""

from tidegate.kernels.public_aggregates import *  # noqa: F403 - each class is a public function
