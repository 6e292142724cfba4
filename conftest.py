"""What all tests and the examples in docstrings share: their order, their cases, one Spark session."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.doctest import DoctestItem

from tests.spark.class_archive import java_options
from tests.support import features_seen, hypothesis_profiles

#: Modules whose docstring examples run against Spark.
_SPARK_EXAMPLES = (
    "tidegate.api.events",
    "tidegate.api.folders.read_folder",
    "tidegate.api.together",
    "tidegate.spark.session",
)

hypothesis_profiles.register_profiles()
hypothesis_profiles.forget_local_constants()

# For sessions of the tests, and of programs that tests start.
os.environ["SPARK_SUBMIT_OPTS"] = java_options()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Tests run in the same order for everybody; `--randomly-seed` asks for another one."""
    if config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = hypothesis_profiles.SEED
    features_seen.register(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--features", metavar="FILE", help="write down which features tests have seen")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    import tidegate as tg

    session = tg.local_spark(cores=2, app="tidegate-tests")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    if not isinstance(request.node, DoctestItem):
        return
    import tidegate as tg

    doctest_namespace.clear()  # it is one for all: no example may live on what another one left
    doctest_namespace["tg"] = tg
    if request.node.name.startswith(_SPARK_EXAMPLES):
        spark = request.getfixturevalue("spark")
        doctest_namespace |= {"spark": spark, "clicks_folder": request.getfixturevalue("tmp_path")}
        doctest_namespace["clicks_df"] = spark.sql(
            "select timestamp'2024-05-01 12:00:01Z' ts, 'ann' user, 12.5D price "
            "union all select timestamp'2024-05-01 12:00:07Z', 'bob', 3.0D"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest tests come first, so that no process has one of them left when the other is done.
    items.sort(key=lambda item: item.get_closest_marker("kills") is None)
    for item in items:
        if "tests/spark" in item.path.as_posix() or item.name.startswith(_SPARK_EXAMPLES):
            item.add_marker(pytest.mark.spark)
        features_seen.name_feature(item)
