"""SQL that builds the same plan nodes as the Python API."""

from tidegate.sql.compiler import compile
from tidegate.sql.program import Column, Input, Insert, Program, SinkTable, Stream

__all__ = ["Column", "Input", "Insert", "Program", "SinkTable", "Stream", "compile"]
