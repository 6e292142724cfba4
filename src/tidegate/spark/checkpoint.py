"""The note beside a checkpoint: the id of the query, and which plan its state belongs to."""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyarrow import fs

from tidegate.errors import CheckpointMismatch
from tidegate.plan.identity import Identity

NOTE = "tidegate.json"


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
        filesystem, path = fs.FileSystem.from_uri(self.path)
        if filesystem.get_file_info(path).type != fs.FileType.NotFound:
            filesystem.delete_file(path)

    def write(self, progress: Mapping[str, Any]) -> None:
        filesystem, folder = fs.FileSystem.from_uri(self.checkpoint)
        _write(filesystem, folder, posixpath.join(folder, posixpath.basename(self.path)), progress)


def stored_identity(checkpoint: str) -> Identity | None:
    """The identity that an earlier start wrote down, if there was one."""
    filesystem, folder = fs.FileSystem.from_uri(checkpoint)
    note = _read(filesystem, posixpath.join(folder, NOTE))
    return note.identity if note else None


def claim(checkpoint: str, identity: Identity) -> str:
    """Write the note on the first start; on later ones check that nothing differs. The query's id."""
    filesystem, folder = fs.FileSystem.from_uri(checkpoint)
    path = posixpath.join(folder, NOTE)
    stored = _read(filesystem, path)
    if stored is None:
        if filesystem.get_file_info(posixpath.join(folder, "offsets")).type != fs.FileType.NotFound:
            raise CheckpointMismatch(
                f"{checkpoint} is the checkpoint of a query that tidegate did not start: "
                "choose a new checkpoint location"
            )
        stored = Note(str(uuid.uuid4()), identity)
        _write(filesystem, folder, path, asdict(stored))
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


def _read(filesystem: Any, path: str) -> Note | None:
    if filesystem.get_file_info(path).type == fs.FileType.NotFound:
        return None
    with filesystem.open_input_stream(path) as stream:
        try:
            return Note(**json.loads(stream.read()))
        except (ValueError, TypeError) as error:
            raise CheckpointMismatch(f"{path} is damaged and cannot be read: {error}") from None


def _write(filesystem: Any, folder: str, path: str, note: Mapping[str, Any]) -> None:
    filesystem.create_dir(folder, recursive=True)
    with filesystem.open_output_stream(path + ".new") as stream:
        stream.write(json.dumps(note, indent=2).encode())
    filesystem.move(path + ".new", path)
