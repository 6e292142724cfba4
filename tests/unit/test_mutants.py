"""The list of mutants: each still breaks something, and docs/proofs.md names the test that notices."""

import ast

import pytest

from scripts import mutants
from scripts.mutants import MUTANTS, ROOT, SOURCES, Fate, Mutant
from tests.unit.test_semantics_page import PROOFS, Proof, proofs

EVERY_MUTANT = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)


@EVERY_MUTANT
def test_the_text_that_keeps_a_rule_is_there_once(mutant):
    text = (ROOT / SOURCES / mutant.file).read_text("utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.file}: {mutant.old}"
    ast.parse(text.replace(mutant.old, mutant.new))  # it breaks a rule, not Python


def test_there_are_many_and_they_are_all_different():
    assert len(MUTANTS) >= 12
    assert len({mutant.rule for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


def test_the_page_of_proofs_names_the_test_of_each():
    named = set(proofs(PROOFS.read_text("utf-8")))
    assert [mutant.proof for mutant in MUTANTS if Proof.of(mutant.proof) not in named] == []


def test_a_text_that_is_gone_is_told(tmp_path):
    mutants.copy_sources(tmp_path)
    gone = Mutant("a rule", "kernels/late.py", "no such text", "", MUTANTS[0].proof)
    with pytest.raises(AssertionError, match="has 'no such text' 0 times"):
        gone.apply(tmp_path)


@pytest.mark.parametrize(
    ("code", "fate"), [(0, Fate.SURVIVED), (1, Fate.KILLED), (2, Fate.BROKEN), (5, Fate.BROKEN)]
)
def test_only_a_test_that_fails_kills(monkeypatch, code, fate):
    changed = []

    def run_tests(root, tests):
        changed.append((root / SOURCES / MUTANTS[0].file).read_text("utf-8"))
        return code, "said"

    monkeypatch.setattr(mutants, "run_tests", run_tests)
    assert mutants.fate_of(MUTANTS[0])[0] == fate
    assert MUTANTS[0].new in changed[0]


@pytest.mark.parametrize(("fate", "code"), [(Fate.KILLED, 0), (Fate.SURVIVED, 1), (Fate.BROKEN, 1)])
def test_one_that_is_not_killed_is_a_failure(monkeypatch, capsys, fate, code):
    monkeypatch.setattr(mutants, "run_tests", lambda *_: (0, ""))
    fates = {MUTANTS[0].rule: fate}
    monkeypatch.setattr(mutants, "fate_of", lambda one: (fates.get(one.rule, Fate.KILLED), "said"))
    assert mutants.main([]) == code
    assert fate.value in capsys.readouterr().out


def test_mutants_are_chosen_by_words():
    assert [mutant.rule for mutant in mutants.chosen(["touch meet"])] == [
        "sessions that just touch meet"
    ]
    assert mutants.chosen([]) == list(MUTANTS)
