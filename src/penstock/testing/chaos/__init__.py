"""Faults that a worker has to survive, each beside a source and a sink that must not lose a line.

`stage` has the worker and what is beside the fault, `troublemakers` the connectors that misbehave, `proxy` what stands
between a worker and its broker. The other modules hold the cases, and `command` runs them (`bin/chaos`). The quick
cases are tests too (`tests/real/chaos`).
"""
