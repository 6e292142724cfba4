"""`tidegate demo`: the demonstration."""

from __future__ import annotations

from argparse import Namespace


def run(arguments: Namespace) -> int:
    from tidegate import demo

    return demo.main(arguments.folder)
