"""The Hypothesis profiles: how many cases property tests try, and that everybody tries the same ones.

`TIDEGATE_PROFILE` says how hard to look: `quick` by default, `thorough` for many more cases, `unshrunk`
to see failures as they are found. Each of them tries the same cases each time. Only `fuzz` tries fresh
ones, and belongs to `make fuzz`.
"""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

#: The order of tests, and what each finds in the global random generators.
SEED = 20261116

_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
    "database": None,  # what one machine has found before, another one has not
}
_SAME = {"derandomize": True, **_COMMON}


def register_profiles() -> None:
    settings.register_profile("quick", max_examples=6, **_SAME)
    settings.register_profile("thorough", max_examples=600, **_SAME)
    settings.register_profile(
        "unshrunk", max_examples=20, phases=[Phase.explicit, Phase.generate], **_SAME
    )
    settings.register_profile("fuzz", max_examples=20, derandomize=False, **_COMMON)
    settings.load_profile(os.environ.get("TIDEGATE_PROFILE", "quick"))


def forget_local_constants() -> None:
    """Hypothesis also draws numbers and texts that it finds in the project's loaded modules.

    So which cases a test tries would depend on the tests that have run in its process before.
    """
    assert callable(providers._get_local_constants)
    providers._get_local_constants = lambda: providers._local_constants
