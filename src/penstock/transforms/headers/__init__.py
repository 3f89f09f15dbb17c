"""Transforms of headers.

- ``drop_headers`` removes headers by name.
- ``header_from`` moves or copies fields of the key or value to headers; ``insert_header`` adds a header.
"""
