"""Text of a pipeline file → its model, or an error that says where and what would work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tidegate.errors import PipelineError, did_you_mean
from tidegate.pipeline import model
from tidegate.pipeline.document import Document, Path, read_yaml


def parse(text: str, name: str, environment: Mapping[str, str]) -> tuple[model.Pipeline, Document]:
    """The pipeline that a file describes; `name` is what messages call the file."""
    document = read_yaml(text, name, environment)
    try:
        return model.Pipeline.model_validate(document.value), document
    except ValidationError as error:
        problems = [_problem(document, one) for one in error.errors(include_url=False)]
        raise PipelineError("\n".join(problems)) from None


def _problem(document: Document, error: Any) -> str:
    path = _in_file(document, error["loc"])
    match error["type"]:
        case "missing":
            path, problem = path[:-1], f"{path[-1]!r} is missing"
        case "union_tag_not_found":
            problem = "'connector' is missing"
        case "unknown_key":
            path, problem = (*path, error["ctx"]["key"]), _message(error)
        case "literal_error" | "union_tag_invalid":
            known = _names(error["ctx"].get("expected") or error["ctx"]["expected_tags"])
            problem = _no_such(error["ctx"].get("tag", error["input"]), known)
        case "no_such_choice":
            problem = _no_such(_first(error["input"]), error["msg"].split(", "))
        case "one_function" | "one_program":
            problem = _message(error)
        case _:
            problem = f"{_message(error)}, got {document.given(path, error['input'])}"
    return str(document.error(path, problem))


def _in_file(document: Document, location: Path) -> Path:
    """A place as the file has it: pydantic also names, on the way, which kind of a choice it took."""
    path: Path = ()
    for place, part in enumerate(location, 1):
        last = place == len(location) and not str(part).startswith("<")
        if last or (*path, part) in document.lines:
            path = (*path, part)
    return path


def _no_such(given: object, known: list[str]) -> str:
    return f"{given!r} is not known here; {did_you_mean(str(given), known)}"


def _first(given: object) -> object:
    return next(iter(given), given) if isinstance(given, dict) else given


def _names(listed: str) -> list[str]:
    """The names in a list as pydantic writes it: `'a', 'b' or 'c'`."""
    return listed.replace(" or ", ", ").replace("'", "").split(", ")


def _message(error: Any) -> str:
    message = str(error["msg"])
    return message[:1].lower() + message[1:]
