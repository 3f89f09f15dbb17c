"""Reference pages that are made from the code: the settings, and the names that authors import.

Each page is committed; tests compare it with what the code says now. ``python -m penstock.testing.reference.settings``
and ``python -m penstock.testing.reference.names`` write them again.
"""
