"""Single JSON values: headers, defaults of schemas, and values without columns.

``reading`` and ``writing`` follow a schema.
``schemaless`` needs none; ``tree`` has the parsed form.
"""
