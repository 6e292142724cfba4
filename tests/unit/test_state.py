"""A bucket's pages: written once, found again, merged when they pile up, never taken for another's."""

import polars as pl
import pyarrow as pa
import pytest

from tidegate.columnar import ipc
from tidegate.errors import StateError
from tidegate.state.pages import (
    KEY,
    BucketState,
    Manifest,
    MemoryPages,
    Page,
    Resident,
    ResidentBuckets,
    damage,
    state_of,
)

TABLE, PLACE = "slices", "at"


def put(state: BucketState, entries: list[tuple[str, int, int]], width: int = 4) -> None:
    """Append (key, position, value) entries."""
    names, places, values = zip(*entries, strict=True)
    rows = pa.table({KEY: pa.array(range(len(names)), pa.int32()), PLACE: places, "v": values})
    (coded,) = state.remap_codes([(pa.table({"k": pa.array(names)}), rows)])
    state.append(TABLE, coded, PLACE, width)


def entries(state: BucketState, low: int = -(10**9), high: int = 10**9) -> list[tuple[str, int, int]]:
    """What is stored, in the order it was written."""
    found = []
    for page in state.load(TABLE, low, high):
        names = state.known_keys.column("k").take(pa.array(page[KEY])).to_pylist()
        found += zip(names, page[PLACE].to_list(), page["v"].to_list(), strict=True)
    return found


def merge(pages: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(pages)


def test_what_was_appended_is_there_after_a_restart_and_with_a_memory():
    store, resident = MemoryPages(), Resident()
    state = BucketState(store, "plan", resident)
    put(state, [("a", 1, 10), ("b", 2, 20)])
    state.commit()
    again = BucketState(store, "plan", resident)
    put(again, [("c", 1, 30), ("a", 3, 40)])
    again.commit()
    expected = [("a", 1, 10), ("b", 2, 20), ("c", 1, 30), ("a", 3, 40)]
    assert entries(BucketState(store, "plan", resident)) == expected
    assert entries(BucketState(store, "plan")) == expected


def test_pages_cover_a_range_each_and_only_those_asked_for_are_read():
    store = MemoryPages()
    state = BucketState(store, "plan")
    put(state, [("a", place, place) for place in range(12)], width=4)
    state.commit()
    fresh = BucketState(store, "plan")
    assert [(page.low, page.high) for page in fresh.pages(TABLE)] == [(0, 3), (4, 7), (8, 11)]
    assert [place for _, place, _ in entries(fresh, 5, 6)] == [4, 5, 6, 7]
    assert len(fresh._resident.pages) == 1


def test_negative_positions_have_pages_too():
    state = BucketState(MemoryPages(), "plan")
    put(state, [("a", place, 0) for place in (-9, -8, -1, 0)], width=4)
    assert [(page.low, page.high) for page in state.pages(TABLE)] == [
        (-9, -9),
        (-8, -8),
        (-1, -1),
        (0, 0),
    ]


def test_a_batch_over_a_very_long_time_makes_few_pages():
    state = BucketState(MemoryPages(), "plan")
    put(state, [("a", place * 1000, place) for place in range(1000)], width=1)
    assert 4 <= len(state.pages(TABLE)) <= 8
    assert [value for _, _, value in entries(state)] == list(range(1000))


def test_pages_below_a_position_are_dropped_and_their_bytes_gone():
    store = MemoryPages()
    state = BucketState(store, "plan")
    put(state, [("a", place, place) for place in range(12)], width=4)
    state.drop_below(TABLE, 6)  # the page 4 … 7 still has something to say
    state.commit()
    assert [place for _, place, _ in entries(BucketState(store, "plan"))] == list(range(4, 12))
    assert len(store) == 3  # two pages and the manifest
    later = BucketState(store, "plan")
    later.drop_below(TABLE, 12)
    later.commit()
    assert store == {}


def test_a_bucket_without_pages_stores_nothing():
    store = MemoryPages()
    BucketState(store, "plan").commit()
    assert store == {}


def test_many_pages_are_compacted_and_nothing_is_lost():
    store, expected = MemoryPages(), []
    for number in range(50):
        state = BucketState(store, "plan")
        batch = [("k", 1, number), (f"only-{number}", 2, number)]
        put(state, batch)
        state.compact(TABLE, merge, PLACE, 4)
        state.commit()
        expected += batch
        assert sorted(entries(BucketState(store, "plan"))) == sorted(expected)
    assert len(store) < 20
    assert set(store) == {"manifest", *(page.id for page in BucketState(store, "plan").pages(TABLE))}


@pytest.mark.parametrize(
    "sizes",
    [[1] * 20, [1, 40] + [1] * 20, [1, 12, 1, 100, 1, 1, 1, 1, 9, 1, 1, 1, 1, 1, 1, 1]],
    ids=["even", "one large page", "mixed"],
)
def test_compaction_keeps_the_order_in_which_entries_were_written(sizes):
    """What came later must stay later: the latest entry of a window is the one that is out."""
    store, state = MemoryPages(), None
    for number, size in enumerate(sizes):
        state = BucketState(store, "plan")
        put(state, [("k", 1, number), *((f"x{i}", 1, number) for i in range(size - 1))])
        state.compact(TABLE, merge, PLACE, 4)
        state.commit()
    mine = [value for key, _, value in entries(BucketState(store, "plan")) if key == "k"]
    assert mine == list(range(len(sizes)))


def test_compaction_keeps_the_order_beside_a_page_that_covers_more():
    store = MemoryPages()
    for number in range(20):
        state = BucketState(store, "plan")
        far = [("k", 100 * place, -1) for place in range(1, 30)] if number == 1 else []
        put(state, [("k", 1, number), *far], width=4)
        state.compact(TABLE, merge, PLACE, 4)
        state.commit()
    mine = [value for _, place, value in entries(BucketState(store, "plan")) if place == 1]
    assert mine == list(range(20))


def test_the_state_of_another_plan_is_refused():
    store = MemoryPages()
    state = BucketState(store, "one")
    put(state, [("a", 1, 1)])
    state.commit()
    with pytest.raises(StateError) as error:
        BucketState(store, "other")
    assert str(error.value) == (
        "the checkpoint's state was written by another program: its keys, window, aggregates or "
        "strategy are not those of this one, or the number of buckets is another; use a new checkpoint "
        "location. If only the number of shuffle partitions differs, buckets=… can be what it was at "
        "first"
    )


def test_the_manifest_of_another_format_is_refused():
    store = MemoryPages(manifest=bytes([ipc.VERSION + 1]) + b"{}")
    expected = f"stored in format {ipc.VERSION + 1}, but this version reads format {ipc.VERSION}"
    with pytest.raises(StateError, match=expected):
        BucketState(store, "plan")


def test_a_page_that_is_listed_but_gone_is_an_error_and_not_an_empty_one():
    store = MemoryPages()
    state = BucketState(store, "plan")
    put(state, [("a", 1, 1)])
    state.commit()
    [page] = state.pages(TABLE)
    del store[page.id]
    expected = (
        f"operator 1, tumbling\\(1 minute\\) by user, bucket 3: page {page.id} of the table 'slices' is "
        "listed in the manifest but not stored. .*`tidegate repair CHECKPOINT`"
    )
    with (
        pytest.raises(StateError, match=expected),
        state_of("operator 1, tumbling(1 minute) by user", 3),
    ):
        entries(BucketState(store, "plan"))


def test_damage_is_told_page_by_page():
    store = MemoryPages()
    for number in range(3):
        state = BucketState(store, "plan")
        put(state, [("a", number, number), ("b", number, number)])
        state.commit()
    assert damage(store) == []
    assert damage({}) == []
    gone, cut, other = BucketState(store, "plan").pages(TABLE)
    short, longer = BucketState(MemoryPages(), "plan"), MemoryPages(store)
    put(short, [("a", 1, 1)])
    [shorter] = short._store.values()
    del longer[gone.id]
    longer |= {cut.id: store[cut.id][:-3], other.id: shorter, "stray": b""}
    listed = f"page {gone.id} of the table 'slices' is listed in the manifest but not stored"
    assert damage(longer) == [
        listed,
        "page stray is stored but not listed in the manifest",
        f"page {cut.id} of the table 'slices' cannot be read: stored table is cut short after "
        f"{len(store[cut.id]) - 3} bytes",
        f"page {other.id} of the table 'slices' has 1 rows, not 2",
    ]
    for broken in (b"", b"\x01{}", store["manifest"][:9]):
        [problem] = damage(store | {"manifest": broken})
        assert problem.startswith("the manifest cannot be read: ")


def test_the_manifest_comes_back_as_it_was():
    manifest = Manifest("plan", 5, 7, [Page("id", TABLE, 4, -8, 3, 2)])
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_a_memory_that_is_behind_or_saw_an_attempt_that_failed_is_never_trusted():
    store, ahead, behind = MemoryPages(), Resident(), Resident()
    for number, resident in enumerate([ahead, behind, ahead, ahead, behind]):
        failed = MemoryPages(store)
        attempt = BucketState(failed, "plan", resident)
        put(attempt, [("wrong", 1, -1)])
        attempt.commit()
        state = BucketState(store, "plan", resident)
        put(state, [(f"k{number}", 1, number)])
        state.commit()
    expected = [(f"k{number}", 1, number) for number in range(5)]
    for resident in (ahead, behind, Resident()):
        assert entries(BucketState(store, "plan", resident)) == expected


def test_memories_are_forgotten_oldest_first_when_they_grow_too_large():
    buckets = ResidentBuckets(max_bytes=3000)
    for bucket in range(3):
        buckets.get("op", bucket).pages["page"] = pl.DataFrame({"a": list(range(150))})
    buckets.get("op", 0)  # used again
    buckets.trim()
    assert not buckets.get("op", 1).pages
    assert buckets.get("op", 0).pages
    assert buckets.get("op", 2).pages


def test_what_a_worker_remembers_counts_with_its_keys():
    """Long keys can be most of it: counted by pages alone a worker would keep far too many."""
    buckets = ResidentBuckets(max_bytes=1 << 20)
    for number in range(8):
        names = pa.table({"user": [f"{number}-{n}-{'x' * 100}" for n in range(4_000)]})
        buckets.get("operator", number).keys.codes_of([names])
    assert buckets.get("operator", 7).size > 4_000 * 100
    buckets.trim()
    kept = [number for number in range(8) if len(buckets.get("operator", number).keys)]
    assert kept in ([7], [6, 7])
