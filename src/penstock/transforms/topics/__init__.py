"""Transforms that rename the topic of a record: RegexRouter, TimestampRouter."""
