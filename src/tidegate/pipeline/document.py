"""YAML with positions: values as Python has them, and for each the line it stands on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tidegate.errors import PipelineError

#: Where a value is: the keys and numbers that lead to it.
Path = tuple[str | int, ...]

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}")


@dataclass
class Document:
    """The values of a file, and where each comes from."""

    name: str
    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    #: What stands in the file where environment variables were put in: a secret is not shown.
    templates: dict[Path, str] = field(default_factory=dict)

    def error(self, path: Path, problem: str) -> PipelineError:
        """An error that says where in the file it is."""
        known = path
        while known not in self.lines:
            known = known[:-1]
        where = f"{self.name}, line {self.lines[known]}"
        return PipelineError(f"{where}: {f'{shown(path)}: ' if path else ''}{problem}")

    def given(self, path: Path, value: Any) -> str:
        """A value as messages show it: as it stands in the file, not as the environment fills it in."""
        if isinstance(value, dict | list) and any(one[: len(path)] == path for one in self.templates):
            return "a mapping" if isinstance(value, dict) else "a list"
        return repr(self.templates.get(path, value))


def shown(path: Path) -> str:
    """A path as people write it: `query.operators[0].window`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)[1:]


def read_yaml(text: str, name: str, environment: Mapping[str, str] = os.environ) -> Document:
    """The document, with `${NAME}` and `${NAME:-default}` in its values replaced."""
    document = Document(name)
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            raise PipelineError(f"{name} is empty")
        _walk(loader, root, (), document, environment)
        document.value = loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise PipelineError(f"{name}, line {line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise PipelineError(f"{name}: not YAML: {error}") from None
    except RecursionError:
        raise PipelineError(f"{name}: a part of it contains itself") from None
    finally:
        loader.dispose()
    return document


def _walk(
    loader: yaml.SafeLoader,
    node: yaml.Node,
    path: Path,
    document: Document,
    environment: Mapping[str, str],
) -> None:
    document.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        _fill_in(loader, node, path, document, environment)
        try:
            loader.construct_object(node)
        except ValueError as error:  # such as the 30th of February
            shown = document.given(path, node.value)
            raise document.error(path, f"{shown}: {error}; put quotes around a text") from None
    for part, line, child in _children(node, path, document):
        document.lines[*path, part] = line
        _walk(loader, child, (*path, part), document, environment)


def _children(
    node: yaml.Node, path: Path, document: Document
) -> Iterator[tuple[str | int, int, yaml.Node]]:
    if isinstance(node, yaml.SequenceNode):
        yield from ((n, child.start_mark.line + 1, child) for n, child in enumerate(node.value))
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, child in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise document.error(path, "a key is a plain word; a text with braces needs quotes")
            if key.value in seen:  # YAML would silently take the last one
                first = seen[key.value]
                raise document.error(path, f"{key.value!r} is given twice, in lines {first} and {line}")
            seen[key.value] = line
            yield key.value, line, child


def _fill_in(
    loader: yaml.SafeLoader,
    node: yaml.ScalarNode,
    path: Path,
    document: Document,
    environment: Mapping[str, str],
) -> None:
    try:
        filled = fill_in(node.value, environment)
    except PipelineError as error:
        raise document.error(path, str(error)) from None
    if filled != node.value:
        document.templates[path] = node.value
        node.value = filled
        if node.style is None:  # without quotes 20 is a number, also from the environment
            node.tag = loader.resolve(yaml.ScalarNode, filled, (True, False))


def fill_in(text: str, environment: Mapping[str, str]) -> str:
    """The text with `${NAME}` and `${NAME:-default}` replaced."""

    def value_of(variable: re.Match[str]) -> str:
        name, default = variable["name"], variable["default"]
        if name not in environment and default is None:
            hint = f"set it, or give a default: ${{{name}:-value}}"
            raise PipelineError(f"the environment variable {name} is not set; {hint}")
        return environment.get(name) or default or ""

    return _VARIABLE.sub(value_of, text)
