"""A herder as a member of a group of workers: rounds, the leader's duties, and what workers ask of each other.

Start from:

- ``WorkerCluster`` (``worker_cluster``): what the herder asks and tells of its group; puts the other parts together.
- ``WorkerGroup`` (``group``): the worker as a member, and what its place is now; ``plan_round`` (``rounds``) makes the
  leader's answer.
- ``LeaderDuties`` (``leader``): session keys, the right to write the config topic, statuses of workers that are gone.
- ``FencingRounds`` (``fencing``): the producers of former tasks end before those of now begin (exactly-once sources).
- ``Signer``, ``Verifier`` (``session_keys``): how workers prove that a request is one of theirs.

Which worker runs what is decided in ``penstock.assignors``; Kafka's side of the membership is in
``penstock.kafka.group``.

Source: KIP-415, KIP-507, KIP-618.
"""
