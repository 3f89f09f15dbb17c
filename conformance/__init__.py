"""Recorded answers of Kafka Connect's own classes, and what compares Penstock with them: see ``vectors``."""
