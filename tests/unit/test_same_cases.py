"""`make test` is the same for everybody: the same tests in the same order, on the same cases."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[2]

#: What draws from a generator that nobody has seeded, by the module it belongs to.
UNSEEDED = {
    "random": {"Random", "SystemRandom"},
    "np.random": {"default_rng", "RandomState"},
}


def run(*arguments: object, hash_seed: int, **environment: str) -> str:
    """What pytest says in a process of its own, in which sets have another order."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cases(*arguments: object, hash_seed: int, **environment: str) -> list[str]:
    """All that Hypothesis tries, as it shows it."""
    said = run(*arguments, "-s", "--hypothesis-verbosity=verbose", hash_seed=hash_seed, **environment)
    lines = [line for line in said.splitlines() if " passed" not in line]
    assert sum(line.startswith("Draw 1: ") for line in lines) > 3
    return lines


# Its integers may be any: Hypothesis would mix in numbers that it finds in modules.
FILE, NAME = "tests/property/test_keys.py", "test_a_key_of_each_type"


def test_a_property_is_tried_on_the_same_cases_in_every_process():
    """Whatever else is loaded there, and in whatever order sets are."""
    alone = cases(FILE, "-k", NAME, hash_seed=1)
    assert cases("tests/property", "-k", NAME, hash_seed=2) == alone


def test_fresh_cases_are_asked_for():
    fuzz = {"TIDEGATE_PROFILE": "fuzz"}
    one, two, again = (
        cases(FILE, "-k", "no_key", f"--hypothesis-seed={seed}", hash_seed=1, **fuzz)
        for seed in (5, 6, 5)
    )
    assert one != two
    assert one == again


@pytest.mark.skipif("TIDEGATE_PROFILE" in os.environ, reason="somebody asks for other cases")
def test_no_case_depends_on_a_clock_or_on_what_was_found_before():
    assert settings.default.derandomize
    assert settings.default.database is None
    assert settings.default.deadline is None


def test_tests_have_one_order():
    one, two = (run("tests/property", "--collect-only", hash_seed=seed).splitlines() for seed in (1, 2))
    tests = [line for line in one if "::" in line]
    assert len(tests) > 100
    assert tests == [line for line in two if "::" in line]
    assert tests != sorted(tests), "an order that nobody has thought of"


# -- other chance ---------------------------------------------------------------------------------


def unseeded(source: str) -> list[str]:
    """Calls that draw from a generator without a seed of its own."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (makers := UNSEEDED.get(ast.unparse(node.func.value))) is not None
        and not (node.func.attr in makers and node.args)
    ]


def test_every_random_generator_has_a_seed():
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert len(files) > 100
    found = {str(file.relative_to(ROOT)): unseeded(file.read_text("utf-8")) for file in files}
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_a_generator_without_a_seed_is_found():
    source = "random.Random(5).random()\nrandom.shuffle(rows)\nnp.random.default_rng()\nrandom.Random()"
    assert unseeded(source) == ["random.shuffle(rows)", "np.random.default_rng()", "random.Random()"]


# -- limits of time --------------------------------------------------------------------------------

#: Speed that is measured, and waits that are not as long as the others (`tests/support/time_limits.py`).
TIMED = re.compile(
    r"perf_counter|mark\.timeout|timeout=\d|\.(wait|join|result|await_?[tT]ermination)\(\d\d"
)


def test_no_test_has_a_limit_of_its_own():
    files = [file for file in sorted((ROOT / "tests").rglob("*.py")) if file != Path(__file__)]
    found = {str(file.relative_to(ROOT)): TIMED.findall(file.read_text("utf-8")) for file in files}
    assert {name: limits for name, limits in found.items() if limits} == {}


@pytest.mark.parametrize(
    "line", ["took = perf_counter()", "done.wait(60)", "run(timeout=120)", "query.awaitTermination(60)"]
)
def test_a_limit_of_its_own_is_found(line):
    assert TIMED.search(line)
