"""Damaged state: found, and rolled back to the last version that is whole.

Version n of the state is what batch n - 1 left; version 0 is before any batch. To go back to a version
is to move aside what is newer: commits and files of state. The offsets of those batches are held back,
and the next start replays them one by one: the same rows, in the same batches, under the same numbers.
So sinks that know batches by number leave out what they have, and nothing is there twice.

All that is moved is kept in the checkpoint. A repair that is interrupted is finished by the next one,
and until then the checkpoint is not started.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import SparkSession

from tidegate.connectors.files import METADATA, Written
from tidegate.connectors.metadata_files import (
    exists,
    names_in,
    numbers_in,
    read_metadata,
    write_metadata,
)
from tidegate.errors import StateError
from tidegate.spark.checkpoint.metadata import (
    HELD,
    batches_to_replay,
    check_state_is_readable,
    last_batch,
    last_begun,
    operators_in,
    stored_format,
    stored_identity,
    stored_pages,
)
from tidegate.spark.checkpoint.ownership import Owner
from tidegate.spark.session import SAFE_FORMAT, spark_errors, state_format
from tidegate.state.pages import damage

PENDING = "tidegate.repair.json"
KEPT = "tidegate.repaired"
OFFSETS, COMMITS, STATE = "offsets", "commits", "state"

#: A file of a partition's state that belongs to one version: `state/0/1/4.changelog`, `4_<id>.zip`, and
#: their checksums.
_VERSIONED = re.compile(
    r"state/\d+/\d+/(?:[^/]+/)*\.?(\d+)(?:_[^./]+)?\.(?:changelog|zip|delta|snapshot)(?:\.crc)?"
)


@dataclass(frozen=True)
class Repair:
    """What is to be done: the version to go back to, and the last batch that is replayed then."""

    version: int
    until: int
    #: The folder in the checkpoint that keeps what is moved aside.
    kept: str

    @property
    def replayed(self) -> range:
        return range(self.version, self.until + 1)


# -- what is whole --------------------------------------------------------------------------------


def damage_at(spark: SparkSession, checkpoint: str, version: int) -> list[str]:
    """What is wrong with a version of the state, in words; nothing where it is whole."""
    if version == 0:
        return []
    with state_format(spark, stored_format(checkpoint) or SAFE_FORMAT):
        found = (_damage_of(spark, checkpoint, number, version) for number in operators_in(checkpoint))
        return [problem for problems in found for problem in problems]


def _damage_of(spark: SparkSession, checkpoint: str, operator: int, version: int) -> list[str]:
    title = _title(checkpoint, operator)
    try:
        pages = stored_pages(spark, checkpoint, operator, version - 1)
        examined = pages.groupBy("bucket").applyInArrow(_examined, "bucket int, problem string")
        found = sorted(tuple(row) for row in examined.collect())
    except spark_errors() as error:
        return [f"{title}: Spark cannot read it: {_reason(error)}"]
    return [f"{title}, bucket {bucket}: {problem}" for bucket, problem in found]


def _reason(error: Exception) -> str:
    """What Spark says first; what follows is where in Spark it happened."""
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.getMessage()).partition("\n")[0]


def _examined(bucket: pa.Table) -> pa.Table:
    names, pages = bucket.column("name").to_pylist(), bucket.column("page").to_pylist()
    problems = damage(dict(zip(names, pages, strict=True)))
    numbers = [bucket.column("bucket")[0].as_py()] * len(problems)
    return pa.table(
        {"bucket": pa.array(numbers, pa.int32()), "problem": pa.array(problems, pa.string())}
    )


def _title(checkpoint: str, operator: int) -> str:
    """What users call an operator; Spark numbers them from the end of the query."""
    identity = stored_identity(checkpoint)
    if identity is None:
        raise StateError(f"{checkpoint} is no checkpoint of tidegate: there is no tidegate.json in it")
    return identity.title(list(identity.operators)[-1 - operator])


def versions_to_go_back_to(checkpoint: str) -> list[int]:
    """The versions from which every later batch can be replayed, newest first."""
    offsets = {*numbers_in(posixpath.join(checkpoint, OFFSETS)), *batches_to_replay(checkpoint)}
    committed = numbers_in(posixpath.join(checkpoint, COMMITS))
    versions = [0, *(batch + 1 for batch in committed)]
    return [
        v for v in reversed(versions) if offsets.issuperset(range(max(v - 1, 0), _until(checkpoint) + 1))
    ]


def last_whole(spark: SparkSession, checkpoint: str) -> int | None:
    """The newest version that is whole, and from which all later batches can be replayed."""
    versions = versions_to_go_back_to(checkpoint)
    return next((v for v in versions if not damage_at(spark, checkpoint, v)), None)


def check_whole(spark: SparkSession, checkpoint: str) -> None:
    """Refuse to start on state that two writers have broken, and say what can be done."""
    version = last_batch(checkpoint) + 1
    problems = damage_at(spark, checkpoint, version)
    if problems:
        whole = last_whole(spark, checkpoint)
        raise StateError(
            "\n".join([_broken(checkpoint, version), *_shown(problems), _advice(checkpoint, whole)])
        )


def _broken(checkpoint: str, version: int) -> str:
    return f"the state of {checkpoint} is damaged in version {version}, after batch {version - 1}:"


def _shown(problems: list[str], most: int = 5) -> Iterator[str]:
    yield from (f"  {problem}" for problem in problems[:most])
    if len(problems) > most:
        yield f"  and {len(problems) - most} more"


def _advice(checkpoint: str, whole: int | None) -> str:
    if whole is None:
        return "no version is whole that later batches could be replayed from: " + _WHAT_REMAINS
    after = f"after batch {whole - 1}" if whole else "before any batch"
    return (
        f"the last whole version is {whole}, {after}: `tidegate repair {checkpoint}` goes back to it, "
        f"and the next start replays batches {whole} to {_until(checkpoint)}"
    )


_WHAT_REMAINS = (
    "what remains are a copy of the checkpoint from before, or a new checkpoint location, where the "
    "sources are read from their beginning, or from the offsets that the folder offsets/ has"
)


# -- going back -----------------------------------------------------------------------------------


def planned(spark: SparkSession, checkpoint: str, to: int | None) -> tuple[Repair | None, list[str]]:
    """What a repair would do, if anything, and what is wrong with the newest version.

    A repair that was interrupted is what is done, whatever is asked for.
    """
    pending = pending_repair(checkpoint)
    if pending is not None:
        return pending, []
    check_state_is_readable(checkpoint)
    newest = last_batch(checkpoint) + 1
    problems = damage_at(spark, checkpoint, newest)
    if to is None and not problems:
        return None, []
    version = _wanted(spark, checkpoint, to, problems)
    kept = posixpath.join(KEPT, str(len(names_in(posixpath.join(checkpoint, KEPT))) + 1))
    return Repair(version, _until(checkpoint), kept), problems


def _wanted(spark: SparkSession, checkpoint: str, to: int | None, problems: list[str]) -> int:
    if to is None:
        whole = last_whole(spark, checkpoint)
        if whole is None:
            newest = last_batch(checkpoint) + 1
            lines = [_broken(checkpoint, newest), *_shown(problems), _advice(checkpoint, None)]
            raise StateError("\n".join(lines))
        return whole
    possible = versions_to_go_back_to(checkpoint)
    if to not in possible:
        listed = ", ".join(map(str, sorted(possible))) or "none"
        raise StateError(
            f"{checkpoint} cannot go back to version {to}: not all later batches could be replayed, or "
            f"there is no such version. Possible: {listed}"
        )
    broken = damage_at(spark, checkpoint, to)
    if broken:
        raise StateError("\n".join([_broken(checkpoint, to), *_shown(broken)]))
    return to


def pending_repair(checkpoint: str) -> Repair | None:
    """A repair that was begun and not finished."""
    return read_metadata(
        posixpath.join(checkpoint, PENDING), lambda stored: Repair(**stored), StateError
    )


def refuse_unfinished(checkpoint: str) -> None:
    if exists(posixpath.join(checkpoint, PENDING)):
        raise StateError(
            f"a repair of {checkpoint} was interrupted: run `tidegate repair {checkpoint}` again first"
        )


def carry_out(checkpoint: str, repair: Repair) -> dict[str, int]:
    """Move aside what is newer than the version; how many files of each kind there were.

    Each step moves what is still there, so a repair that was interrupted goes on.
    """
    write_metadata(posixpath.join(checkpoint, PENDING), asdict(repair))
    moved = {
        "offsets": _hold_offsets(checkpoint, repair),
        "commits": _move_commits(checkpoint, repair),
        "files of state": _move_state(checkpoint, repair),
    }
    _move(checkpoint, PENDING, posixpath.join(repair.kept, PENDING))
    return moved


def _hold_offsets(checkpoint: str, repair: Repair) -> int:
    newer = [n for n in numbers_in(posixpath.join(checkpoint, OFFSETS)) if n >= repair.version]
    # The newest first: if this stops half-way, no batch is missing in the middle of the log.
    for batch in reversed(newer):
        _copy(
            checkpoint,
            posixpath.join(OFFSETS, str(batch)),
            posixpath.join(repair.kept, OFFSETS, str(batch)),
        )
        _move_with_checksum(checkpoint, OFFSETS, HELD, batch)
    return len(newer)


def _move_commits(checkpoint: str, repair: Repair) -> int:
    newer = [n for n in numbers_in(posixpath.join(checkpoint, COMMITS)) if n >= repair.version]
    for batch in reversed(newer):
        _move_with_checksum(checkpoint, COMMITS, posixpath.join(repair.kept, COMMITS), batch)
    return len(newer)


def _move_state(checkpoint: str, repair: Repair) -> int:
    newer = [path for path, version in _versioned(checkpoint) if version > repair.version]
    for path in newer:
        _move(checkpoint, path, posixpath.join(repair.kept, path))
    return len(newer)


def _versioned(checkpoint: str) -> Iterator[tuple[str, int]]:
    """The files of state that belong to one version, by their paths in the checkpoint."""
    filesystem, root = fs.FileSystem.from_uri(checkpoint)
    folder = posixpath.join(root, STATE)
    for info in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True)):
        path = posixpath.relpath(info.path, root)
        version = _VERSIONED.fullmatch(path)
        if version:
            yield path, int(version[1])


# -- replays --------------------------------------------------------------------------------------


def replay(checkpoint: str, run_one: Callable[[], object]) -> None:
    """Let a query run one batch after the other, as long as some are to be replayed."""
    while held := batches_to_replay(checkpoint):
        if last_begun(checkpoint) == last_batch(checkpoint):
            _move_with_checksum(checkpoint, HELD, OFFSETS, held[0])
        run_one()


def _until(checkpoint: str) -> int:
    return max(last_begun(checkpoint), last_batch(checkpoint), *batches_to_replay(checkpoint))


# -- what is shown --------------------------------------------------------------------------------


def offsets_of(checkpoint: str, batch: int) -> list[str]:
    """How far each source had come with a batch, as Spark wrote it down; nothing if that is gone."""
    for folder in (OFFSETS, HELD):
        uri = posixpath.join(checkpoint, folder, str(batch))
        if exists(uri):
            filesystem, path = fs.FileSystem.from_uri(uri)
            with filesystem.open_input_stream(path) as stream:
                return stream.read().decode().splitlines()[2:]  # after the version and the settings
    return []


def taken_by(owner: Owner | None) -> dict[str, str]:
    """The sinks of the last start, each with the batches it has as far as that is written beside it."""
    return {name: _taken(sink) for name, sink in (owner.sinks if owner else {}).items()}


def _taken(sink: str) -> str:
    folder = sink.rpartition(" in ")[2]
    if "://" not in folder or not exists(posixpath.join(folder, METADATA)):
        return sink
    written = read_metadata(
        posixpath.join(folder, METADATA), lambda stored: Written(**stored), StateError
    )
    return sink if written is None else f"{sink}, which has batches up to {written.batch_id}"


# -- files ----------------------------------------------------------------------------------------


def _move_with_checksum(checkpoint: str, source: str, target: str, batch: int) -> None:
    """A file of Spark's logs; where Hadoop keeps checksums beside files, that one first."""
    checksum = f".{batch}.crc"
    if exists(posixpath.join(checkpoint, source, checksum)):
        _move(checkpoint, posixpath.join(source, checksum), posixpath.join(target, checksum))
    _move(checkpoint, posixpath.join(source, str(batch)), posixpath.join(target, str(batch)))


def _move(checkpoint: str, source: str, target: str) -> None:
    filesystem, root = fs.FileSystem.from_uri(checkpoint)
    place = posixpath.join(root, target)
    filesystem.create_dir(posixpath.dirname(place), recursive=True)
    filesystem.move(posixpath.join(root, source), place)


def _copy(checkpoint: str, source: str, target: str) -> None:
    filesystem, root = fs.FileSystem.from_uri(checkpoint)
    place = posixpath.join(root, target)
    filesystem.create_dir(posixpath.dirname(place), recursive=True)
    filesystem.copy_file(posixpath.join(root, source), place)
