"""A herder as a member of a group of workers: rounds, the leader's duties, and requests between workers.

Start from:

- ``WorkerCluster`` (``worker_cluster``): the herder's interface to its group; combines the other parts.
- ``WorkerGroup`` (``member``): the worker as a member, and its present place; ``plan_round`` (``assignment``) computes
  the leader's assignment, ``MemberMetadata`` and ``Assignment`` (``connect_protocol``) are the messages of a round.
- ``LeaderDuties`` (``leader``): session keys, the right to write the config topic, statuses of lost workers.
- ``FencingRounds`` (``leader``): end the producers of former tasks before those of the present tasks begin
  (exactly-once sources).
- ``Signer``, ``Verifier`` (``session_keys``): prove that a request comes from a worker of the group.

A round goes from ``penstock.kafka.group``, Kafka's side of the membership, through ``assignment`` to ``member``;
``penstock.herder.control_plane`` defines the herder's interface to a group (``Membership``), and
``penstock.herder.running`` derives the units to run from a snapshot and an assignment, and starts and stops instances
to match. The worker that a connector is assigned to has its instance and status, and asks the leader to store its task
configurations; the worker of a task has its threads, clients, status and offsets. ``penstock.rest.services`` passes on
requests for another worker.

To change the stored records, start from ``penstock.model.cluster_config`` and ``penstock.stores.config``. The workers
of ``testkit.simulated_cluster`` test the invariants under failures.

Source: KIP-415, KIP-507, KIP-618.
"""
