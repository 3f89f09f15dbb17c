"""Previews: a connector's chain tried on some records, without writing anything.

``Previewer`` (``previewer``) answers a request. ``SourceReaders`` next to it reads the first records of a source in a
process that ``fork_server`` makes; ``chain`` takes the records through converters and transforms, step by step; their
Spark plans run in a process of their own (``process``, and ``session`` inside of it).
"""
