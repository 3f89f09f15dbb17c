"""The runtime of a worker: connectors, and source and sink tasks with their loops, offsets and errors.

Start from:

- ``Worker`` (``worker``): one thread for each connector, a slot for each task.
- ``connector``: one connector on its thread. ``task``: the parts that all tasks share. ``source`` and ``sink``: the two
  kinds of tasks, stage by stage.
- ``errors``: failed records, skipped or not, and their reports.
- ``factory``: builds tasks from configurations. ``isolation``: tasks in processes of their own.
- ``bulk``: bounded work that Spark's executors do. ``backfill``: ranges read again while the connector runs.
- ``preview``: a chain tried on a few records.

Each of these imports only those further down in this order: ``preview``, ``factory``, ``backfill``, ``isolation`` and
``connector``, then ``source``, ``sink`` and ``bulk``, ``task``, ``errors``.

``penstock.herder`` decides which connectors and tasks run. ``penstock.pipeline`` processes the records of a batch, and
``penstock.kafka`` moves its bytes. Every thread has an owner: see ``penstock.threads``.
"""
