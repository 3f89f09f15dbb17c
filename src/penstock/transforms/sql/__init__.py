"""``Sql``: Spark SQL over whole frames.

``Sql`` (``transform``) turns the user's expressions into a select. ``checks`` decides what an expression may contain,
and tries it before there are records; ``reader`` parses the text for it and estimates the cost, ``functions`` lists the
allowed functions. ``text`` has the tokens of an expression, and finds its fields and functions; ``fields`` makes typed
columns of values without schemas.
"""
