"""Transforms that rename the topic of a record.

- ``regex_router`` renames topics that match a regular expression.
- ``timestamp_router`` builds the topic from the record's topic and timestamp.
"""
