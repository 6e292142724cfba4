"""How long tests wait for what must happen: only so that a hang ends. No test says how fast anything is.

pytest ends a test that takes longer than its `timeout` (pyproject.toml).
"""

#: In seconds: far more than a machine needs that is ten times slower than ours.
HANG = 30 * 60
