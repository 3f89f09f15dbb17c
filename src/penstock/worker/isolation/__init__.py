"""Tasks in separate processes (``task.isolation=process``): the effects of the author's code end with the process.

``isolated`` (``process``) makes the proxy that the worker's runners use as the task; ``TaskHost`` (``child``) holds the
author's task in its process; ``Channel`` (``channel``) carries calls in both directions. Pipeline, Kafka clients and
offsets stay in the worker. ``docs/isolation.md`` describes the effects for users.
"""
