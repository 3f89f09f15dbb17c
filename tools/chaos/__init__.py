"""Faults that a worker has to survive, each beside a source and a sink that must not lose a line.

Start from:

- ``QUICK``, ``LONG`` (``command``): the cases by name; ``bin/chaos`` runs them.
- ``Stage`` (``stage``): the worker, and the lines that flow beside a fault.
- ``Troublemaker`` (``troublemakers``): connectors that misbehave; ``KafkaProxy`` (``proxy``): wrong answers of a
  broker.

``task_cases``, ``data_cases``, ``rest_cases`` and ``surroundings_cases`` hold the cases. The quick ones are tests too
(``tests/real/chaos``). ``distributed`` and ``broker_rounds`` have groups of workers, ``connectors`` and ``tables`` rows
that go from table to table. Single faults of a producer are in ``testkit.brokers.scripted_broker``.
"""
