"""The rows of files, block by block: ``FormatReader`` (``reader``), a class for each format.

- ``opening``: the reader of a file.
- ``csv``, ``json_lines``, ``lines``: text; ``text``: such files as blocks of whole lines, and the bad rows of a block.
- ``columnar``: Parquet, ORC and Avro. ``xml``: elements of XML.
"""
