"""Decides what should run, and serves the requests of REST, the command line and connectors.

Main types: ``Herder`` (what REST needs of one), ``StandaloneHerder``, ``ConnectorValidator``. One thread owns the
state; requests are queued to it and answered with futures, reads come from an immutable snapshot.
"""

from penstock.herder.interface import Health, Herder
from penstock.herder.standalone import StandaloneHerder

__all__ = ["Health", "Herder", "StandaloneHerder"]
