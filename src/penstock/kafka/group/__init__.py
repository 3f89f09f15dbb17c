"""Membership of a worker in its group: Kafka's classic group protocol with the protocol type "connect".

``GroupMember`` (``member``) exchanges bytes with its owner, ``GroupEvents`` (``events``). ``session`` decides when work
has to stop, ``rounds`` has the rounds and heartbeats.

Source: KIP-62, KIP-394, KIP-800.
"""
