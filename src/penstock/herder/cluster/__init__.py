"""A herder as a member of a group of workers: rounds, the leader's duties, and what workers ask of each other.

Start from:

- ``WorkerCluster`` (``worker_cluster``): what the herder asks and tells of its group; puts the other parts together.
- ``WorkerGroup`` (``member``): the worker as a member, and what its place is now; ``plan_round`` (``rounds``) makes the
  leader's answer.
- ``LeaderDuties`` (``leader``): session keys, the right to write the config topic, statuses of workers that are gone.
- ``FencingRounds`` (``leader``): the producers of former tasks end before those of now begin (exactly-once sources).
- ``Signer``, ``Verifier`` (``session_keys``): how workers prove that a request is one of theirs.

All that the herder needs to know of a group is in ``penstock.herder.membership``. A round goes from
``penstock.kafka.group``, Kafka's side of the membership, through ``rounds`` and ``penstock.assignors``, which deals out
the work, to ``member``; ``penstock.herder.membership`` says what a snapshot and an assignment ask for, and
``penstock.herder.running`` brings what runs to that. A worker that was given a connector has its instance and status,
and asks the leader to store its task configurations; one that was given a task has its threads, clients, status and
offsets. Requests for another worker are passed on by ``penstock.rest.forwarding``.

To change who gets what, start from ``penstock.assignors.assignment``; to change what is stored, from
``penstock.model.cluster_config`` and ``penstock.stores.config``. What must hold whatever happens is tried on the
workers of ``testkit.simulated_cluster``.

Source: KIP-415, KIP-507, KIP-618.
"""
