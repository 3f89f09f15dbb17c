"""Decides which connectors and tasks run, and serves the requests of REST, the command line and connectors.

Start from:

- ``Herder`` (``herder``): the requests. One thread (``loop``) owns the state; requests are queued to it and answered
  with futures, reads come from an immutable snapshot (``control_plane``).
- ``ConfigurationChanges`` and ``Restarts`` (``changes``), ``Questions`` (``queries``), ``OffsetChanges``
  (``offset_changes``): a class for each kind of request.
- ``Reconfiguration`` (``changes``): asks connectors for the configurations of their tasks. ``ConnectorFacts``
  (``connector_facts``): what their classes say.
- ``spec_of`` (``running``): the settings of one instance; ``Running`` next to it starts and stops instances to match.
- ``cluster``: a herder as a member of a group of workers.

The configuration is a ``ClusterConfig`` of ``penstock.model``, kept by a store of ``penstock.stores``, and checked by
``penstock.validation``. ``penstock.worker`` runs connectors and tasks.
"""

from penstock.herder.control_plane import Created, Health, HerderParts, Membership
from penstock.herder.herder import Herder

__all__ = ["Created", "Health", "Herder", "HerderParts", "Membership"]
