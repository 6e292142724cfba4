"""What tests need of the version of Spark that they run on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.features_seen import REFUSED
from tidegate.errors import TidegateError
from tidegate.spark.versions import ADMISSION_CONTROL, STATE_FORMAT_2, STATE_OVER_CONNECT, Capability

#: Elsewhere such programs are refused: `test_versions.py` has a test for each.
admission_control = pytest.mark.skipif(
    not ADMISSION_CONTROL.here,
    reason=f"limits of batches in Python sources came with Spark {ADMISSION_CONTROL.since}",
)

#: Elsewhere new checkpoints have format 1.
state_format_2 = pytest.mark.skipif(
    not STATE_FORMAT_2.here, reason=f"Spark reads state of format 2 since {STATE_FORMAT_2.since}"
)

#: Elsewhere such programs are refused: `test_connect.py` has a test.
state_over_connect = pytest.mark.skipif(
    not STATE_OVER_CONNECT.here,
    reason=f"clients of Spark Connect have state since Spark {STATE_OVER_CONNECT.since}",
)


@contextmanager
def refused_without(
    capability: Capability, text: str, record_property: Callable[[str, object], None]
) -> Iterator[None]:
    """Where Spark lacks the capability, what is done inside is refused with the text."""
    if capability.here:
        yield
        return
    with pytest.raises(TidegateError) as refusal:
        yield
    assert f"{text} needs Spark {capability.since} or newer, and this is Spark " in str(refusal.value)
    record_property(REFUSED, f"needs {capability.since}")
