"""The note beside a checkpoint that says which plan its state belongs to."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from pyarrow import fs

from tidegate.errors import CheckpointMismatch
from tidegate.plan.identity import Identity

NOTE = "tidegate.json"


def stored_identity(checkpoint: str) -> Identity | None:
    """The note of an earlier start, if there was one."""
    filesystem, folder = fs.FileSystem.from_uri(checkpoint)
    return _read(filesystem, posixpath.join(folder, NOTE))


def claim(checkpoint: str, identity: Identity) -> None:
    """Write the note on the first start; on later ones check that nothing differs."""
    filesystem, folder = fs.FileSystem.from_uri(checkpoint)
    note = posixpath.join(folder, NOTE)
    stored = _read(filesystem, note)
    if stored is None:
        if filesystem.get_file_info(posixpath.join(folder, "offsets")).type != fs.FileType.NotFound:
            raise CheckpointMismatch(
                f"{checkpoint} is the checkpoint of a query that tidegate did not start: "
                "choose a new checkpoint location"
            )
        _write(filesystem, folder, note, identity)
    elif stored != identity:
        raise CheckpointMismatch(_difference(checkpoint, stored, identity))


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


def _read(filesystem: Any, note: str) -> Identity | None:
    if filesystem.get_file_info(note).type == fs.FileType.NotFound:
        return None
    with filesystem.open_input_stream(note) as stream:
        try:
            return json.loads(stream.read())
        except ValueError as error:
            raise CheckpointMismatch(f"{note} is damaged and cannot be read: {error}") from None


def _write(filesystem: Any, folder: str, note: str, identity: Identity) -> None:
    filesystem.create_dir(folder, recursive=True)
    with filesystem.open_output_stream(note + ".new") as stream:
        stream.write(json.dumps(identity, indent=2).encode())
    filesystem.move(note + ".new", note)
