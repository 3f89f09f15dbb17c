"""Reference pages that are made from the code: settings, transforms and converters, and the names that authors import.

Each page is committed; tests compare it with what the code says now. ``python -m penstock.testing.reference.settings``,
``python -m penstock.testing.reference.plugins`` and ``python -m penstock.testing.reference.names`` write them again.
The examples of transforms and converters (``*_examples.toml``) are run by a test.
"""
