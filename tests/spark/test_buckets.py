"""Bucket labels: stable, and spread evenly by Spark's own hash."""

from typing import Any

import pytest

from tidegate.spark.lower import bucket_labels


@pytest.mark.parametrize("buckets", [1, 2, 3, 7, 16])
def test_spark_gives_each_partition_one_label(spark: Any, buckets: int) -> None:
    labels = bucket_labels(buckets)
    frame = spark.createDataFrame([(label,) for label in labels], "label int")
    homes = [row[0] for row in frame.selectExpr(f"pmod(hash(label), {buckets})").collect()]
    assert sorted(homes) == list(range(buckets))


def test_labels_never_change() -> None:
    """State is found by them: other labels would be another place."""
    assert [bucket_labels(n) for n in (1, 2, 3, 4)] == [[0], [0, 2], [0, 1, 11], [0, 2, 6, 12]]
