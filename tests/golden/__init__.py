"""Expected texts, one file each. `TIDEGATE_GOLDEN=write` writes them anew; read the diff then."""

import os
from pathlib import Path


def assert_golden(name: str, text: str) -> None:
    """The text is what the file says."""
    file = Path(__file__).with_name(f"{name}.txt")
    if os.environ.get("TIDEGATE_GOLDEN") == "write":
        file.write_text(text.rstrip("\n") + "\n", "utf-8")
    assert file.exists(), f"no golden file {file.name}: run once with TIDEGATE_GOLDEN=write"
    assert text.rstrip("\n") + "\n" == file.read_text("utf-8")
