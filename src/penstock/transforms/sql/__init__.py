"""``Sql``: Spark SQL over whole frames.

``Sql`` (``transform``) makes a select out of what the user wrote. ``tokens`` and ``reader`` read the text, ``fence``
and ``functions`` say what may stand in it, ``text`` what it uses; ``cost`` estimates it, ``checks`` tries it before
there are records. ``fields`` makes typed columns of values without schemas.
"""
