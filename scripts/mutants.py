# ruff: noqa: E501 (the names of proofs are as long as they are)
"""Rules, broken one by one: for each the test that docs/proofs.md names must fail. `make mutants`.

A mutant is a change of a line or two in a copy of the sources; the working tree stays as it is. Words
given as arguments choose mutants whose rule contains one of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
SOURCES = Path("src", "tidegate")

#: Where transcripts are, and which test runs them: one that has a restart after every batch.
_TRANSCRIPTS = "tests/transcripts/"
_RUNS = "tests/unit/test_transcripts.py::test_and_after_a_restart_between_any_two_batches"

#: The same tests on the same examples each time.
_PYTEST = (
    "-m",
    "pytest",
    "-x",
    "-q",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    "--hypothesis-seed=0",
)
_PASSED, _FAILED = 0, 1


@dataclass(frozen=True)
class Mutant:
    """A rule, the text that keeps it, what breaks it, and the test that must notice."""

    rule: str
    file: str
    old: str
    new: str
    #: One that docs/proofs.md names: `file::function`, or `file::name` for a transcript.
    proof: str

    def apply(self, root: Path) -> None:
        """Break the rule in the sources below a folder."""
        file = root / SOURCES / self.file
        text = file.read_text("utf-8")
        assert text.count(self.old) == 1, f"{self.file} has {self.old!r} {text.count(self.old)} times"
        file.write_text(text.replace(self.old, self.new), "utf-8")

    @property
    def test(self) -> str:
        """The proof as pytest knows it."""
        file, _, name = self.proof.partition("::")
        return f"{_RUNS}[{name}]" if file.startswith(_TRANSCRIPTS) else self.proof


TIME = [
    Mutant(
        "the watermark never goes back",
        "dataflow/watermarks.py",
        "self._watermark is None or watermark > self._watermark",
        "self._watermark is None or watermark != self._watermark",
        "tests/unit/test_watermarks.py::test_time_that_goes_on_without_rows_does_not_go_back_either",
    ),
    Mutant(
        "of several sources the lowest counts",
        "dataflow/watermarks.py",
        "lowest = min(self._reached[source] for source in counting)",
        "lowest = max(self._reached[source] for source in counting)",
        "tests/unit/test_watermarks.py::test_the_lowest_counts",
    ),
    Mutant(
        "an operator waits for all its inputs",
        "dataflow/watermarks.py",
        "return min(known) if known and len(known) == len(names) else None",
        "return min(known) if known else None",
        "tests/unit/test_watermarks.py::test_an_operator_has_the_minimum_of_its_inputs_less_what_it_holds_back",
    ),
    Mutant(
        "what W makes due is closed before rows are judged",
        "kernels/windows/kernel.py",
        "fresh = self._ingest(context, arrivals, progress.closed)",
        "fresh = self._ingest(context, arrivals, progress.previously_closed)",
        "tests/transcripts/windows.py::what the watermark makes due is closed before rows are taken in",
    ),
    Mutant(
        "a chained operator is held back",
        "kernels/registry.py",
        "clock.watermark - self.delay",
        "clock.watermark",
        "tests/transcripts/chains.py::corrections come in time: the lateness is held back",
    ),
    Mutant(
        "a chained operator takes in first, and judges nothing late",
        "kernels/registry.py",
        "self.kernel.step(state, before, Clock(None, clock.now))",
        "self.kernel.step(state, before, clock)",
        "tests/transcripts/chains.py::what a watermark closes is in time for the windows that it closes next",
    ),
]

WINDOWS = [
    Mutant(
        "a window closes at W >= end + lateness",
        "kernels/late.py",
        "return NEVER if watermark is None else watermark - self.lateness",
        "return NEVER if watermark is None else watermark - self.lateness - 1",
        "tests/transcripts/windows.py::a window closes in the first batch whose watermark has reached its end",
    ),
    Mutant(
        "times before 1970 have windows like all others",
        "kernels/windows/slices.py",
        "np.floor_divide(shifted, self.window.slide)",
        "np.fix(shifted / self.window.slide).astype(np.int64)",
        "tests/unit/test_slicing.py::test_a_slice_belongs_to_the_windows_that_hold_its_times",
    ),
    Mutant(
        "the end of a window does not belong to it: a row there is in the gap",
        "kernels/windows/slices.py",
        "phase < self.window.size",
        "phase <= self.window.size",
        "tests/transcripts/windows.py::a row in a gap between windows belongs to none and is not late",
    ),
    Mutant(
        "a row counts in every window that holds it",
        "kernels/windows/slices.py",
        "return -((self.per_window - 1 - slice_) // self.per_slide)",
        "return slice_ // self.per_slide",
        "tests/transcripts/windows.py::a changelog knows inserts and deletes only",
    ),
    Mutant(
        "a range around a row is closed: lookback with a lookahead",
        "kernels/rows/sliding.py",
        "low, high = time - self.window.lookback,",
        "low, high = time - self.window.lookback + 1,",
        "tests/transcripts/sliding.py::a microsecond outside of the range is outside",
    ),
    Mutant(
        "a range around a row is closed: what has arrived",
        "kernels/rows/arrival_order.py",
        "timeline.time[rows] - lookback)",
        "timeline.time[rows] - lookback + 1)",
        "tests/transcripts/sliding.py::both ends of the range belong to it",
    ),
    Mutant(
        "a lookahead waits until W has reached its end",
        "kernels/rows/sliding.py",
        "self.table.between(state, previous - ahead + 1, now - ahead)",
        "self.table.between(state, previous + 1, now)",
        "tests/transcripts/sliding.py::a window that looks ahead leaves when the watermark has passed it",
    ),
]

SESSIONS = [
    Mutant(
        "rows exactly a gap apart are one session",
        "kernels/sessions/merge.py",
        "start[1:] > furthest[:-1]",
        "start[1:] >= furthest[:-1]",
        "tests/transcripts/sessions.py::rows exactly a gap apart belong together, and a microsecond more parts them",
    ),
    Mutant(
        "the earliest of merged sessions goes on",
        "kernels/sessions/emit.py",
        "earliest = last_emitted.sort(START)",
        "earliest = last_emitted.sort(START, descending=True)",
        "tests/transcripts/sessions.py::on_update: the earliest of merged sessions goes on, the others are deleted",
    ),
    Mutant(
        "what a merge absorbs is taken back",
        "kernels/sessions/emit.py",
        "pl.concat([deleted, change.select(deleted.columns)])",
        "change.select(deleted.columns)",
        "tests/unit/test_sessions.py::test_a_merge_takes_back_two_rows_and_puts_out_one",
    ),
    Mutant(
        "a longest length cuts sessions at its multiples",
        "kernels/sessions/merge.py",
        "apart |= np.diff(start // max_length) != 0",
        "apart |= False",
        "tests/transcripts/sessions.py::max_length cuts sessions at its multiples",
    ),
]

LATE = [
    Mutant(
        "a row is late if all its windows have closed, not one",
        "kernels/windows/kernel.py",
        "last_late = self.slicing.first_slice(closed + 1) - 1",
        "last_late = self.slicing.last_slice(closed)",
        "tests/transcripts/windows.py::a late row still counts in its windows that are open",
    ),
    Mutant(
        "rows of sessions are judged after merging",
        "kernels/sessions/kernel.py",
        "too_late = merged.too_late(horizon)",
        "too_late = merged.states[END].to_numpy() <= horizon",
        "tests/transcripts/sessions.py::late rows are judged after merging: one that touches a live session is in time",
    ),
    Mutant(
        "a single row at exactly W is late",
        "kernels/rows/row_table.py",
        "came, time <= context.watermark)",
        "came, time < context.watermark)",
        "tests/transcripts/reorder.py::a row at the watermark is late, and one after it waits",
    ),
    Mutant(
        "reassign moves what is at most so far behind",
        "kernels/late.py",
        "watermark - time <= self.policy.max_lateness",
        "watermark - time < self.policy.max_lateness",
        "tests/transcripts/windows.py::reassign moves late rows to the watermark if they are not too late",
    ),
    Mutant(
        "every late row is counted",
        "kernels/late.py",
        'outcome.counts["late_rows"] += count',
        'outcome.counts["late_rows"] += 0 if rows is None else count',
        "tests/transcripts/sessions.py::what max_length has cut is late when the cut has passed",
    ),
]

EMISSION = [
    Mutant(
        "a row that takes back equals the row that is out",
        "kernels/changelog.py",
        "*(pl.col(v + _EMITTED).alias(v) for v in values)",
        "*values",
        "tests/transcripts/windows.py::on_update tells each batch's net change, and nothing when a window closes",
    ),
    Mutant(
        "what did not change is not mentioned",
        "kernels/changelog.py",
        "both.filter(known & ~same)",
        "both.filter(known)",
        "tests/transcripts/windows.py::a row that changes no result is not mentioned",
    ),
    Mutant(
        "retractions of a key come before insertions",
        "kernels/contract.py",
        "context.outcome.tables = retractions_first(context.outcome.tables)",
        "context.outcome.tables = list(context.outcome.tables)",
        "tests/unit/test_slice_kernel.py::test_retractions_of_a_key_come_first_even_when_one_of_its_windows_closes",
    ),
    Mutant(
        "periodic speaks again when the interval is over",
        "kernels/windows/emit.py",
        "pl.col(_AT) + self.policy.interval > now",
        "pl.col(_AT) + self.policy.interval >= now",
        "tests/transcripts/windows.py::periodic lets each window speak once an interval, and at its close",
    ),
]

AGGREGATES = [
    Mutant(
        "a count of nulls is 0",
        "kernels/aggregates.py",
        "(pl.len() if self.column is None else value.count())",
        "pl.len()",
        "tests/property/test_aggregates.py::test_over_nothing_but_nulls_the_answer_is_null_and_a_count_zero",
    ),
    Mutant(
        "a sum of nulls is null",
        "kernels/aggregates.py",
        'return pl.when(state["n"] > 0).then(state["sum"])\n',
        'return state["sum"]\n',
        "tests/property/test_aggregates.py::test_over_nothing_but_nulls_the_answer_is_null_and_a_count_zero",
    ),
    Mutant(
        "first goes by arrival among equal times",
        "kernels/aggregates.py",
        "value.sort_by(time, maintain_order=True).first()",
        "value.reverse().sort_by(time.reverse(), maintain_order=True).first()",
        "tests/unit/test_folds.py::test_first_and_last_go_by_time_then_by_arrival",
    ),
]

JOINS = [
    Mutant(
        "windows meet where they overlap, not where they touch",
        "kernels/joins/fixed_windows.py",
        "return first, self._last_begun(end) - 1",
        "return first, self._last_begun(end)",
        "tests/transcripts/joins.py::a pair leaves once although the right row is in many panes, and shows the earliest that overlaps",
    ),
    Mutant(
        "sessions that just touch meet",
        "kernels/joins/sessions.py",
        "touching = end[position] >= begin[one]",
        "touching = end[position] > begin[one]",
        "tests/transcripts/joins.py::sessions that just touch meet, whichever is the first",
    ),
    Mutant(
        "each pair leaves exactly once",
        "kernels/joins/sessions.py",
        "new = left[_NEW].to_numpy()[one] | right[_NEW].to_numpy()[other]",
        "new = np.ones(len(one), dtype=bool)",
        "tests/transcripts/joins.py::pairs that have left do not leave again when the next session closes",
    ),
    Mutant(
        "null matches nothing where the plan says so",
        "kernels/joins/kernel.py",
        "complete &= state.known_keys.column(name).is_valid().to_numpy()",
        "complete |= state.known_keys.column(name).is_valid().to_numpy()",
        "tests/transcripts/joins.py::null matches nothing in keys of which the plan says so, and leaves alone when its window closes",
    ),
    Mutant(
        "every column of a missing side is null, its keys too",
        "kernels/joins/kernel.py",
        "columns = dict.fromkeys(schema.names, pa.nulls(keys.num_rows))",
        "columns = dict.fromkeys(schema.names, pa.nulls(keys.num_rows))\n"
        "        for side in self.sides:\n"
        "            shown = [self.pair.names[side.name][key] for key in side.layout.columns.keys]\n"
        "            columns |= dict(zip(shown, keys.columns, strict=True))",
        "tests/transcripts/joins.py::keys of two names: a pair has both, and each is null if its side is missing",
    ),
]

PASSAGES = [
    Mutant(
        "an id is remembered while W < ts + within",
        "kernels/dedupe.py",
        "context.watermark - self.within + 1",
        "context.watermark - self.within",
        "tests/unit/test_dedupe.py::test_an_id_goes_when_the_watermark_has_passed_its_row_by_within",
    ),
    Mutant(
        "by Spark's rules a late row is late even if its id is known",
        "kernels/dedupe.py",
        "new |= ~counts",
        "new |= False",
        "tests/unit/test_dedupe.py::test_by_sparks_rules_a_late_row_is_late_even_if_its_id_is_known",
    ),
    Mutant(
        "the first to arrive counts",
        "kernels/dedupe.py",
        "positions = np.flatnonzero(counts)[::-1]",
        "positions = np.flatnonzero(counts)",
        "tests/unit/test_dedupe.py::test_the_first_to_arrive_counts_whatever_its_time",
    ),
    Mutant(
        "a lag of exactly the limit passes",
        "kernels/admission/kernel.py",
        "else measured > limit",
        "else measured >= limit",
        "tests/unit/test_admission.py::test_a_lag_of_exactly_the_limit_passes",
    ),
    Mutant(
        "a rejected row spends no token",
        "kernels/admission/kernel.py",
        "asks = verdict[order] == 0",
        "asks = verdict[order] >= 0",
        "tests/unit/test_admission.py::test_a_rejected_row_spends_no_token",
    ),
    Mutant(
        "the mark of the previous arrival moves with every arrival",
        "kernels/admission/kernel.py",
        "held, Streams(level, arrived[last]))",
        "held, Streams(level, np.where(asks[last], arrived[last], streams.arrived)))",
        "tests/unit/test_admission.py::test_a_stream_that_was_silent_loses_one_row",
    ),
    Mutant(
        "a bucket holds no more than its capacity",
        "kernels/admission/token_buckets.py",
        "held = balance + np.minimum(level[:, None], budget.capacity - fullest)",
        "held = balance + level[:, None]",
        "tests/unit/test_admission.py::test_a_bucket_that_is_nearly_full_holds_no_more_than_its_capacity",
    ),
    Mutant(
        "a restart does not refill buckets",
        "kernels/admission/kernel.py",
        "level[position], arrived[position] = stored.to_numpy(), known[_ARRIVED].to_numpy()",
        "arrived[position] = known[_ARRIVED].to_numpy()",
        "tests/unit/test_admission.py::test_a_restart_keeps_the_level",
    ),
    Mutant(
        "up to the threshold nothing is shed",
        "kernels/shedding.py",
        "min(self.smoothed, _MOST) if score > OVERLOAD else 0.0",
        "min(self.smoothed, _MOST)",
        "tests/unit/test_shedding.py::test_up_to_the_threshold_nothing_goes_at_once",
    ),
    Mutant(
        "what matters more is shed less",
        "kernels/shedding.py",
        "decision.probability * share",
        "decision.probability",
        "tests/unit/test_shedding.py::test_priorities_count",
    ),
]

MUTANTS: Sequence[Mutant] = (
    *TIME,
    *WINDOWS,
    *SESSIONS,
    *LATE,
    *EMISSION,
    *AGGREGATES,
    *JOINS,
    *PASSAGES,
)


class Fate(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    #: Its text is not there, or the tests did not run: nothing is known.
    BROKEN = "BROKEN"


def fate_of(mutant: Mutant) -> tuple[Fate, str]:
    """Run the mutant's test over it; what is said if it was not killed."""
    with TemporaryDirectory(prefix="tidegate-mutant-") as folder:
        copy_sources(Path(folder))
        try:
            mutant.apply(Path(folder))
        except (AssertionError, OSError) as error:
            return Fate.BROKEN, str(error)
        code, said = run_tests(Path(folder), [mutant.test])
    if code == _FAILED:
        return Fate.KILLED, ""
    return (Fate.SURVIVED if code == _PASSED else Fate.BROKEN), said


def copy_sources(root: Path) -> None:
    """The sources without compiled ones, whose times may say that they still hold."""
    shutil.copytree(ROOT / SOURCES, root / SOURCES, ignore=shutil.ignore_patterns("__pycache__"))


def run_tests(root: Path, tests: Sequence[str]) -> tuple[int, str]:
    """The exit code of pytest with the sources below a folder, and its last words."""
    path = os.pathsep.join(map(str, (root / "src", ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *_PYTEST, *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    return done.returncode, "\n".join((done.stdout + done.stderr).splitlines()[-15:])


def chosen(words: Sequence[str]) -> list[Mutant]:
    pattern = re.compile("|".join(map(re.escape, words)))
    return [mutant for mutant in MUTANTS if pattern.search(mutant.rule)]


def main(words: Sequence[str]) -> int:
    began, mutants = time.monotonic(), chosen(words)
    with TemporaryDirectory(prefix="tidegate-unchanged-") as folder:
        copy_sources(Path(folder))
        code, said = run_tests(Path(folder), [mutant.test for mutant in mutants])
    if code != _PASSED:
        print(f"the tests do not pass as it is:\n{said}")
        return 1
    fates = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        for mutant, (fate, said) in zip(mutants, pool.map(fate_of, mutants), strict=True):
            print(f"{fate.value:8}  {mutant.rule}", flush=True)
            fates.append(fate)
            if fate is not Fate.KILLED:
                print(f"  {mutant.file}: {mutant.old}\n  {mutant.test}\n{said}")
    killed = fates.count(Fate.KILLED)
    print(f"{killed} of {len(fates)} killed in {time.monotonic() - began:.0f} s")
    return 0 if killed == len(fates) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
