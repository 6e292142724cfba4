"""Metadata files: small JSON files beside data, each there whole or not at all."""

from __future__ import annotations

import json
import os
import posixpath
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pyarrow import fs

from tidegate.errors import CheckpointMismatch, TidegateError

T = TypeVar("T")


def exists(uri: str) -> bool:
    filesystem, path = fs.FileSystem.from_uri(uri)
    return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)


def names_in(uri: str) -> list[str]:
    """The names of files and folders in a folder, sorted; none where there is no such folder."""
    filesystem, folder = fs.FileSystem.from_uri(uri)
    found = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return sorted(info.base_name for info in found)


def numbers_in(uri: str) -> list[int]:
    """The numbers that files and folders in a folder have as names, in order."""
    return sorted(int(name) for name in names_in(uri) if name.isdecimal())


def read_metadata(
    uri: str, understand: Callable[[Any], T], failure: type[TidegateError] = CheckpointMismatch
) -> T | None:
    """What a metadata file says; None if there is no file. A damaged file raises the `failure`."""
    if not exists(uri):
        return None
    filesystem, path = fs.FileSystem.from_uri(uri)
    with filesystem.open_input_stream(path) as stream:
        try:
            return understand(json.loads(stream.read()))
        except (ValueError, TypeError, KeyError) as error:
            raise failure(f"{path} is damaged and cannot be read: {error!r}") from None


def write_metadata(uri: str, content: Any) -> None:
    """Write a metadata file, whole or not at all."""
    filesystem, path = fs.FileSystem.from_uri(uri)
    filesystem.create_dir(posixpath.dirname(path), recursive=True)
    with filesystem.open_output_stream(path + ".new") as stream:
        stream.write(json.dumps(content, indent=2).encode())
    filesystem.move(path + ".new", path)


def create_metadata(uri: str, content: Any) -> bool:
    """Write a metadata file unless there is one; was it written?

    On a local disk only one of several that try at the same moment succeeds. File systems elsewhere
    have no operation for that which Arrow knows: there it is a look, and then a write.
    """
    if exists(uri):
        return False
    filesystem, path = fs.FileSystem.from_uri(uri)
    if not isinstance(filesystem, fs.LocalFileSystem):
        write_metadata(uri, content)
        return True
    own = Path(f"{path}.{uuid.uuid4().hex}")
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(json.dumps(content, indent=2))
    try:
        os.link(own, path)
    except FileExistsError:
        return False
    finally:
        own.unlink()
    return True
