"""Builds tasks from their configurations.

``TaskBuilder`` (``builder``) makes the runner of a task; ``make_parts`` (``instances``) makes and configures the
task, converters and transforms; ``publish_source`` and ``publish_sink`` (``metrics``) publish the task's metrics;
``bulk`` makes the parts of a bulk task.
"""
