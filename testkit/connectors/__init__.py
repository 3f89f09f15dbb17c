"""Connectors and transforms for tests.

Start from ``ProbeSource`` (``probes``), ``JournalSource`` (``journal_source``) and ``JournalSink`` (``journal_sink``),
which write down what is done to them. Others take memory, end processes, or use Spark slowly.
"""
