"""`make fuzz` shows what it finds, and finds nothing where there is nothing."""

import re
from pathlib import Path

import pytest

from scripts import fuzz

PLANTED = """
from hypothesis import given, settings, strategies as st

@settings(database=None, print_blob=True)
@given(st.lists(st.integers(0, 1000)))
def test_planted(numbers):
    assert {what}
"""


def looked(what: str, folder: Path, monkeypatch: pytest.MonkeyPatch, minutes: float = 5) -> int:
    """What comes of looking for a counterexample to this."""
    file = folder / "test_planted.py"
    file.write_text(PLANTED.format(what=what))
    monkeypatch.setattr(fuzz, "TESTS", (str(file),))
    own = ["-c", str(fuzz.ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    return fuzz.main(["--minutes", str(minutes), "--jobs", "2", *own])


def test_what_is_found_ends_the_search_and_can_be_seen_again(tmp_path, monkeypatch, capsys):
    assert looked("sum(numbers) < 900", tmp_path, monkeypatch) == 1
    said = capsys.readouterr().out
    assert "numbers=[900]" in said
    assert "@reproduce_failure(" in said
    [again] = re.findall(r"^Again: (.*)$", said, re.MULTILINE)
    [seed] = re.findall(r"^seed (\d+): 1 failed", said, re.MULTILINE)
    assert f"--hypothesis-seed={seed} " in again
    assert again.endswith("test_planted.py::test_planted'")


def test_when_time_is_up_nothing_was_found(tmp_path, monkeypatch, capsys):
    assert looked("sum(numbers) >= 0", tmp_path, monkeypatch, minutes=0) == 0
    assert re.fullmatch(r"(seed \d+: 1 passed in .*\n){2}", capsys.readouterr().out)


def test_a_round_that_does_not_run_is_a_failure(tmp_path, monkeypatch, capsys):
    assert looked("no text of a program (", tmp_path, monkeypatch) == 1
    assert "SyntaxError" in capsys.readouterr().out
