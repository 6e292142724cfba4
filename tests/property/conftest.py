"""Property tests work on small frames, for which threads only cost."""

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")
