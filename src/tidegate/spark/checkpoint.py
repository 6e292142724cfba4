"""Notes beside a checkpoint: the id of the query, which plan its state belongs to, its progress."""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from pyarrow import fs

from tidegate.errors import CheckpointMismatch
from tidegate.plan.identity import Identity

NOTE = "tidegate.json"

T = TypeVar("T")


@dataclass(frozen=True)
class Note:
    """What is written down; the id is the query's own, and nothing is compared with it."""

    query: str
    identity: Identity


@dataclass(frozen=True)
class ProgressNote:
    """How far each source has come and when it last had rows, written down after each batch."""

    checkpoint: str

    @property
    def path(self) -> str:
        return posixpath.join(self.checkpoint, "tidegate.progress.json")

    def clear(self) -> None:
        """Begin anew: while a query is down its sources are not silent."""
        if exists(self.path):
            filesystem, path = fs.FileSystem.from_uri(self.path)
            filesystem.delete_file(path)

    def write(self, progress: Mapping[str, Any]) -> None:
        write_note(self.path, progress)


def stored_identity(checkpoint: str) -> Identity | None:
    """The identity that an earlier start wrote down, if there was one."""
    stored = _stored(checkpoint)
    return stored.identity if stored else None


def claim(checkpoint: str, identity: Identity) -> str:
    """Write the note on the first start; on later ones check that nothing differs. The query's id."""
    stored = _stored(checkpoint)
    if stored is None:
        if exists(posixpath.join(checkpoint, "offsets")):
            raise CheckpointMismatch(
                f"{checkpoint} is the checkpoint of a query that tidegate did not start: "
                "choose a new checkpoint location"
            )
        stored = Note(str(uuid.uuid4()), identity)
        write_note(posixpath.join(checkpoint, NOTE), asdict(stored))
    elif stored.identity != identity:
        raise CheckpointMismatch(_difference(checkpoint, stored.identity, identity))
    return stored.query


def _difference(checkpoint: str, stored: Identity, identity: Identity) -> str:
    changes = [
        f"  {part}: stored {stored.get(part, 'nothing')!r}, now {identity.get(part, 'nothing')!r}"
        for part in {**stored, **identity}
        if stored.get(part) != identity.get(part)
    ]
    return "\n".join(
        [
            f"the checkpoint {checkpoint} belongs to another program:",
            *changes,
            "go back to the stored values, or start afresh with a new checkpoint location",
        ]
    )


def _stored(checkpoint: str) -> Note | None:
    return read_note(posixpath.join(checkpoint, NOTE), lambda note: Note(**note))


def exists(uri: str) -> bool:
    filesystem, path = fs.FileSystem.from_uri(uri)
    return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)


def read_note(uri: str, understand: Callable[[Any], T]) -> T | None:
    """What a note says, or nothing where there is none."""
    if not exists(uri):
        return None
    filesystem, path = fs.FileSystem.from_uri(uri)
    with filesystem.open_input_stream(path) as stream:
        try:
            return understand(json.loads(stream.read()))
        except (ValueError, TypeError) as error:
            raise CheckpointMismatch(f"{path} is damaged and cannot be read: {error}") from None


def write_note(uri: str, note: Any) -> None:
    """Write a note down, whole or not at all."""
    filesystem, path = fs.FileSystem.from_uri(uri)
    filesystem.create_dir(posixpath.dirname(path), recursive=True)
    with filesystem.open_output_stream(path + ".new") as stream:
        stream.write(json.dumps(note, indent=2).encode())
    filesystem.move(path + ".new", path)
