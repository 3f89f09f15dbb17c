"""The kit for authors: runs a connector without a broker and without Java, in milliseconds. Public, and in the wheel.

Start from:

- ``run_source``, ``SourceRun`` (``sources``): start, polls, commits, kills, restarts, rebalances of a source.
- ``run_backfill``, ``BackfillRun`` (``sources``): a backfill of a source.
- ``run_sink``, ``SinkRun`` (``sinks``): the same for a sink; ``numbered`` gives records their offsets.
- ``suites``: tests to subclass, for connectors, transforms and converters.
- ``MemoryStore`` (``stores``): a store of files in memory that fails when a test wants it to.
- ``broker`` (``fixtures``): pytest fixtures with a real broker and a Spark session.

``contexts`` are the contexts that tasks have in a run, ``frames`` makes frames without Spark, ``lives`` counts steps.
Built-in connectors are run by the same suites.
"""

from penstock.testing.kit.sinks import SinkRun, numbered, run_sink
from penstock.testing.kit.sources import BackfillRun, SourceRun, run_backfill, run_source
from penstock.testing.kit.stores import MemoryStore
from penstock.testing.kit.suites.connectors import ConnectorSuite
from penstock.testing.kit.suites.converters import ConverterSuite
from penstock.testing.kit.suites.frames import FrameSuite
from penstock.testing.kit.suites.plugins import PluginSuite
from penstock.testing.kit.suites.sinks import SinkSuite
from penstock.testing.kit.suites.sources import SourceSuite
from penstock.testing.kit.suites.transforms import TransformSuite

__all__ = [
    "BackfillRun",
    "ConnectorSuite",
    "ConverterSuite",
    "FrameSuite",
    "MemoryStore",
    "PluginSuite",
    "SinkRun",
    "SinkSuite",
    "SourceRun",
    "SourceSuite",
    "TransformSuite",
    "numbered",
    "run_backfill",
    "run_sink",
    "run_source",
]
