"""Decides what should run, and serves the requests of REST, the command line and connectors.

Start from:

- ``Herder`` (``herder``): the requests. One thread (``loop``) owns the state; requests are queued to it and answered
  with futures, reads come from an immutable snapshot (``control_plane``).
- ``Changes`` (``changes``), ``Restarts`` beside it, ``Questions`` (``queries``), ``OffsetChanges``
  (``offset_changes``): a class for each kind of request.
- ``Reconfiguration`` (``changes``): asks connectors for the configurations of their tasks.
- ``Membership`` (``membership``): which part of what is configured runs here; ``spec_of`` beside it: what one
  instance is made of; ``Running`` (``running``): brings about what is wanted.
- ``cluster``: a herder as a member of a group of workers.

What is configured is a ``ClusterConfig`` of ``penstock.model``, kept by one of ``penstock.stores``. Configurations are
checked by ``penstock.validation``. How connectors and tasks run is not known here: ``penstock.worker`` knows.
"""

from penstock.herder.control_plane import Created, Health, HerderParts
from penstock.herder.herder import Herder
from penstock.herder.membership import SoleMember

__all__ = ["Created", "Health", "Herder", "HerderParts", "SoleMember"]
