"""The runtime of a worker: connectors, and source and sink tasks with their loops, offsets and errors.

Start from ``Worker`` (``worker``): one thread for each connector (``connector_runner``), a slot for each task.
``TaskBuilder`` (``task_builder``) builds tasks from configurations, out of parts that ``task_parts`` makes.
``source``, ``sink`` and ``task`` run tasks, ``isolation`` gives tasks processes of their own. ``verdict`` (``errors``)
decides about failed records, ``DeadLetterQueue`` (``errors``) keeps them. ``bulk``: bounded work that Spark's executors
do. ``Backfills`` (``backfills``): ranges read again while the connector runs. ``preview``: a chain tried on a few
records.

``penstock.herder`` decides which connectors and tasks run. ``penstock.pipeline`` processes the records of a batch, and
``penstock.kafka`` moves its bytes. Every thread has an owner: see ``penstock.threads``.
"""
