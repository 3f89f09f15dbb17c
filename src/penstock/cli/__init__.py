"""The commands: they read arguments, assemble a worker, and pass signals on.

Start from:

- ``connect_standalone``, ``connect_distributed``, ``penstock`` (``commands``): the entry points of the installed
  commands.
- ``worker``: one worker in either mode, from start to exit code.
- ``main`` (``main``): ``penstock ...``, with ``connectors``, ``cluster``, ``quickstart`` and ``spark``, and with
  ``broker`` and ``postgresql`` (``servers``); the commands that call a worker use a ``Session`` with an ``ApiClient``
  (``session``). ``configurations`` has the commands that read a connector's file.

Decisions are elsewhere: ``penstock.herder`` decides which connectors and tasks run, and ``penstock.settings`` defines
the settings.
"""
