"""What tests of several folders share: a PostgreSQL of their own."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.time_limits import HANG

POSTGRES = Path(__file__).parents[1] / "scripts" / "postgres.sh"
NO_SERVER = 3


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of a PostgreSQL that lives as long as the tests do."""
    log = tmp_path_factory.mktemp("postgres") / "log"
    with (
        log.open("w") as messages,
        subprocess.Popen(
            [POSTGRES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            start_new_session=True,  # an interrupted test run still closes its pipe, and that ends it
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        dsn = server.stdout.readline().strip()
        if not dsn and server.wait() == NO_SERVER:
            pytest.skip("no PostgreSQL, and no right to install one: apt-get install postgresql")
        assert dsn, log.read_text()
        yield dsn
        server.stdin.close()
        assert server.wait(timeout=HANG) == 0, log.read_text()
