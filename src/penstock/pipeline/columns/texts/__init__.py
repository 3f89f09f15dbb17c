"""The texts of values, a column at a time.

``text_of`` (``arrow``) and ``numbers`` make Java's text of typed columns by Arrow; ``java_texts`` (``values``) makes
that of many values without schemas. ``json`` has JSON as Spark expressions.
"""
