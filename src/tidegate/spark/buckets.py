"""Bucket labels: integers that Spark's hash partitioning spreads evenly.

Spark sends a label to partition `pmod(murmur3(label), partitions)`. Labels 0, 1, 2 … would land
unevenly, two on one task and none on another; so labels are picked until every partition has its
share. Labels depend on the number of buckets alone, so that stored state is always found again:
with another number of partitions they only lie less evenly.
"""


def bucket_labels(buckets: int) -> list[int]:
    """The first labels, in counting order, of which each of as many partitions gets one."""
    labels: dict[int, int] = {}
    label = 0
    while len(labels) < buckets:
        labels.setdefault(_murmur3(label) % buckets, label)
        label += 1
    return sorted(labels.values())


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
