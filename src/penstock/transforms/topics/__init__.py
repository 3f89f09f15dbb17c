"""Transforms that rename the topic of a record.

- ``regex_router`` renames topics that match a regular expression.
- ``timestamp_router`` makes the topic of the record's topic and timestamp.
"""
