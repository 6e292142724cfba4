"""How long tests wait for what must happen. The limit only ends a hang: no test asserts a speed.

pytest ends a test that takes longer than its `timeout` (pyproject.toml).
"""

#: In seconds: far more than a machine needs that is ten times slower than ours.
HANG = 30 * 60
