"""The formats of files: ``Format`` (``format``), with a class for each format.

- ``avro``: container files.
- ``format``: the others.
"""
