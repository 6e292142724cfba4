"""Bucket labels: integers that Spark's hash partitioning spreads evenly.

Spark sends a label to partition `pmod(murmur3(label), partitions)`. Labels 0, 1, 2 … would land
unevenly, two on one task and none on another; so labels are picked until every partition has its
share. A wrong guess of the number of partitions only costs evenness.
"""


def bucket_labels(buckets: int, partitions: int) -> list[int]:
    """The first labels, in counting order, that give each partition its share of the buckets."""
    share = -(-buckets // partitions)
    taken = [0] * partitions
    labels: list[int] = []
    label = 0
    while len(labels) < buckets:
        home = _murmur3(label) % partitions
        if taken[home] < share:
            taken[home] += 1
            labels.append(label)
        label += 1
    return labels


def _murmur3(value: int, seed: int = 42) -> int:
    """Spark's `hash()` of an int, as a signed 32-bit number."""
    mask = 0xFFFFFFFF
    k = value * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) & mask
    h = seed ^ (k * 0x1B873593 & mask)
    h = (h << 13 | h >> 19) & mask
    h = (h * 5 + 0xE6546B64) & mask
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
