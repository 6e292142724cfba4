"""Each message counts once, from its producer to every kind of sink, whenever the process is killed."""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.oracle import Oracle
from tests.spark import killed_folds
from tests.spark.conftest import NOON
from tests.spark.files import write_files
from tests.spark.killed_folds import MESSAGES, PROGRAMS
from tests.spark.kills import SOAK, Victim, commits, kills
from tidegate.dataflow import compile
from tidegate.spark.schema import spark_schema
from tidegate.testing import replay
from tidegate.testing.results import row_differences
from tidegate.testing.table import Row

KILLS = kills(50)

#: New messages in a file, and how many of them there are in a second; up to four seconds early.
NEW, RATE, EARLY = 80, 8, 4
#: Which part of its messages the producer sends again after a kill, and how many new ones twice.
AGAIN, TWICE = 0.3, 0.1
#: The producer is so many files ahead, so that no process runs out of work.
AHEAD = 4
ACCOUNTS = [None, *(f"account-{number}" for number in range(20))]


@dataclass
class Producer:
    """It numbers its messages, and cannot know which of the last ones have arrived."""

    folder: Path
    dice: random.Random
    #: Each message, once.
    sent: list[Row] = field(default_factory=list)
    files: int = 0

    def send(self) -> None:
        """New messages, the last ones again, and some of the new ones twice, in one file."""
        again = self.sent[round(len(self.sent) * (1 - AGAIN)) :]
        new = [self._message(len(self.sent) + number) for number in range(NEW)]
        self.sent += new
        self._write(self._mixed(new, again))

    def end(self) -> None:
        """A message that closes all windows but its own."""
        last = self._message(len(self.sent) + RATE * 10_000) | {"account": "end"}
        self.sent.append(last)
        self._write([last])

    def _message(self, number: int) -> Row:
        seconds = number / RATE - self.dice.uniform(0, EARLY)
        return {
            "ts": NOON + round(seconds * 1_000_000),
            "producer": f"producer-{number % 3}",
            "partition": number // 3 % 4,
            "sequence": number // 12,
            "account": self.dice.choice(ACCOUNTS),
            "amount": self.dice.randrange(1000),
        }

    def _mixed(self, new: Sequence[Row], again: Sequence[Row]) -> list[Row]:
        """The new ones in their order, the others somewhere in between."""
        end = len(new)
        places = [
            *enumerate(new),
            *((self.dice.uniform(0, end), message) for message in again),
            *((self.dice.uniform(at, end), m) for at, m in enumerate(new) if self.dice.random() < TWICE),
        ]
        return [message for _, message in sorted(places, key=itemgetter(0))]

    def _write(self, messages: list[Row]) -> None:
        write_files(self.folder, [pa.Table.from_pylist(messages, MESSAGES)], start=self.files)
        self.files += 1


@dataclass
class Story:
    """A producer, the queries that read from it, and what they have written."""

    spark: Any
    folder: Path
    dsn: str

    def __post_init__(self) -> None:
        self.producer = Producer(self.folder / "messages", random.Random(11))
        self.victim = Victim(killed_folds.__name__, self.folder, (self.dsn,))

    def send_ahead(self) -> None:
        """One file at least: after each kill the last messages come again."""
        self.producer.send()
        while self.producer.files - commits(self.checkpoint("totals")) < AHEAD:
            self.producer.send()

    def end(self) -> None:
        self.producer.end()
        self.victim.finish()

    def checkpoint(self, name: str) -> Path:
        return self.folder / f"checkpoint-{name}"

    def halted(self, process: Any, what: str) -> None:
        """Wait until both queries have got so far, and stand still."""
        waiting = {f"{what} {name}" for name in PROGRAMS}
        while waiting:
            waiting.discard(self.victim.hear(process))

    # -- what is there ----------------------------------------------------------------------------

    def noted(self, name: str) -> list[int]:
        """The last batch of a query that each sink has."""
        sql = f"SELECT batch_id FROM tidegate_batches WHERE table_name = '{name}'"
        note = json.loads((self.folder / name / "_tidegate_batches").read_text())
        return [note["batch_id"], *(row["batch_id"] for rows in self._answers(sql) for row in rows)]

    def stored_states(self, name: str, version: int) -> bool:
        """Has every partition of every operator this version of its state?"""
        partitions = list(self.checkpoint(name).glob("state/[0-9]*/[0-9]*"))
        return bool(partitions) and all(any(p.glob(f"{version}[._]*")) for p in partitions)

    def results(self, name: str, schema: pa.Schema) -> dict[str, list[Row]]:
        """What each sink holds, as a table."""
        in_duckdb, in_postgres = self._answers(f"SELECT * FROM {name}")
        batches: dict[str, list[Row]] = defaultdict(list)
        for file in sorted((self.folder / name).glob("batch-*.parquet")):
            batches[file.name[: len("batch-00000000")]] += pq.read_table(file).cast(schema).to_pylist()
        if name == "totals":  # changes, which must be legal
            in_files = replay(batches.values(), ("account",))[-1]
        else:
            in_files = [row for rows in batches.values() for row in rows]
        return {"parquet": in_files, "duckdb": in_duckdb, "postgres": in_postgres}

    def _answers(self, sql: str) -> Iterator[list[Row]]:
        """What DuckDB says, and what PostgreSQL says."""
        places = (duckdb.connect, self.folder / "results.duckdb"), (psycopg.connect, self.dsn)
        for connect, place in places:
            with connect(place) as connection:
                cursor = connection.execute(sql)
                names = [column[0] for column in cursor.description]
                yield [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    # -- what should be ---------------------------------------------------------------------------

    def check(self) -> None:
        arrived = pq.read_table(self.folder / "messages").to_pylist()
        assert len(arrived) > 1.5 * len(self.producer.sent), "few messages were sent twice"
        for name in PROGRAMS:
            plan, expected = self._by_the_rules(name, arrived)
            for sink, rows in self.results(name, compile(plan).channels["main"]).items():
                found = [row for row in rows if name == "totals" or row["account"] != "end"]
                assert row_differences(plan, "main", expected, found) == [], (name, sink)
        assert self._snapshot() == self._folded()

    def _by_the_rules(self, name: str, arrived: list[Row]) -> tuple[Any, list[Row]]:
        frame = self.spark.createDataFrame([], spark_schema(MESSAGES))
        plan = PROGRAMS[name](frame).node
        oracle = Oracle(plan)
        oracle.batch(arrived, None)
        if name == "totals":
            return plan, oracle.results()
        return plan, [row for row in oracle.end().main if row["account"] != "end"]

    def _folded(self) -> dict[str | None, tuple[int, int]]:
        """Count and amount of each account, by the messages the producer knows of."""
        counts: Counter[str | None] = Counter()
        amounts: Counter[str | None] = Counter()
        for message in self.producer.sent:
            counts[message["account"]] += 1
            amounts[message["account"]] += message["amount"]
        return {account: (counts[account], amounts[account]) for account in counts}

    def _snapshot(self) -> dict[str | None, tuple[int, int]]:
        read = tg.read_snapshot((self.folder / "snapshot").read_bytes())
        names = [name for name, _ in read.state]
        n, low, high = (names.index(part) for part in ("n.n", "amount.d0", "amount.d1"))
        return {account: (state[n], state[low] + (state[high] << 32)) for (account,), state in read.rows}


@pytest.fixture
def story(spark: Any, postgres: str, tmp_path: Path) -> Iterator[Story]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA once")
        yield Story(spark, tmp_path, f"{postgres}?options=-csearch_path%3Donce")
        connection.execute("DROP SCHEMA once CASCADE")


@pytest.mark.kills
def test_each_message_counts_once_whenever_the_process_is_killed(story: Story) -> None:
    kill_on_either_side_of_the_sinks_commit(story)
    dice, progress = random.Random(11), []
    for _ in range(KILLS if SOAK else 0):
        story.send_ahead()
        story.victim.kill_at_a_random_moment(dice)
        progress.append(commits(story.checkpoint("totals")))
    story.producer.send()
    story.end()
    print(f"{len(progress)} more kills, at {progress} batches, {story.victim.replays} replayed;")
    print(f"{len(story.producer.sent)} messages")
    story.check()
    assert all(story.victim.said[f"written 3 {name}"] >= 2 for name in PROGRAMS)
    # The kills hit queries that were under way.
    assert len(set(progress)) >= len(progress) / 3, progress


def kill_on_either_side_of_the_sinks_commit(story: Story) -> None:
    for _ in range(6):
        story.producer.send()
    with story.victim.running("writing 3") as process:
        story.halted(process, "writing 3")
        for name in PROGRAMS:
            assert story.stored_states(name, version=4)
            assert story.noted(name) == [2, 2, 2]
    story.producer.send()
    with story.victim.running("written 3") as process:
        story.halted(process, "written 3")
        for name in PROGRAMS:
            assert story.noted(name) == [3, 3, 3]
            assert commits(story.checkpoint(name)) == 3
