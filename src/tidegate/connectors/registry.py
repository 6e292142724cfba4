"""Every connector, a line each. Its module declares it; `tg.sinks` has the functions of `__all__`.

Messages list connectors in this order.
"""

# ruff: noqa: F403
# isort: off
from tidegate.connectors.files import *
from tidegate.connectors.kafka import *
from tidegate.connectors.rate import *
from tidegate.connectors.memory import *
from tidegate.connectors.console import *
from tidegate.connectors.duckdb import *
from tidegate.connectors.postgres import *
from tidegate.connectors.discard import *
