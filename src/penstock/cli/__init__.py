"""The commands: they read arguments, put the parts of a worker together, and pass signals on.

Start from:

- ``connect_standalone``, ``connect_distributed``, ``penstock`` (``commands``): where the installed commands begin.
- ``worker``: one worker in either mode, from start to exit code.
- ``main`` (``main``): ``penstock ...``, with ``connectors``, ``cluster``, ``broker``, ``postgresql``, ``quickstart``
  and ``spark``; those that ask a worker do it in a ``Session`` through an ``ApiClient`` (``session``).

Nothing is decided here: ``penstock.herder`` decides what runs, and ``penstock.settings`` what a setting means.
"""
