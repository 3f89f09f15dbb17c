"""A cluster of workers in one thread: herders over a log, a group and a clock that are simulated.

Start from:

- ``SimulatedCluster`` (``cluster``). Time is virtual (``clock``) and every delay comes from one seed, so a run of many
  minutes takes milliseconds and comes out the same each time.
- ``Disturbed`` (``disturbances``): workers crash, freeze and leave, answers get lost, and what must hold is checked.

What runs on a worker is noted, not run (``workers``); the group follows Kafka's classic protocol (``coordinator``); the
config topic is a list that each worker reads at its own pace (``stores``); ``producers`` has the transactional ids.
Groups of real processes are in ``testkit.processes.worker_group``.
"""

from testkit.simulated_cluster.cluster import SimulatedCluster, SimulatedNode

__all__ = ["SimulatedCluster", "SimulatedNode"]
