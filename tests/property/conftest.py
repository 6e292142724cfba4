"""How hard to look: quick by default, `TIDEGATE_PROFILE=thorough` for a long search.

`TIDEGATE_PROFILE=unshrunk` shows failures as they are found, without looking for smaller ones.
"""

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # small frames: threads only cost

from hypothesis import HealthCheck, Phase, settings

_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
}
settings.register_profile("quick", max_examples=9, **_COMMON)
settings.register_profile("thorough", max_examples=600, **_COMMON)
settings.register_profile(
    "unshrunk", max_examples=20, phases=[Phase.explicit, Phase.generate], **_COMMON
)
settings.load_profile(os.environ.get("TIDEGATE_PROFILE", "quick"))
