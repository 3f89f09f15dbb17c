"""The texts of values, a column at a time.

``text_of`` and ``java_texts`` (``values``) make Java's text of typed columns and of many values without schemas.
``json`` has JSON as Spark expressions."""
