"""Single JSON values: those of headers, of schemas' defaults, and those that have no columns.

``reading`` and ``writing`` follow a schema.
``schemaless`` needs none; ``tree`` has the parsed form.
"""
