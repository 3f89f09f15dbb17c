"""Runs the recorded vectors of Kafka Connect's own classes against ours."""
