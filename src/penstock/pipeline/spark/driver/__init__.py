"""The driver JVM of a classic session, and fast ways to run plans on it.

``DriverJvm`` (``jvm``) is the process; ``class_archive`` lets it start in half the time; ``choose_memory_pool``
(``jvm``) chooses the worker's allocators. ``DriverPlan`` and ``PreparedQuery`` (``prepared_plan``) run plans with fewer
calls than PySpark makes.
"""
