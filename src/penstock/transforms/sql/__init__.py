"""``Sql``: Spark SQL over whole frames.

``Sql`` (``transform``) turns the user's expressions into a select. ``tokens`` and ``reader`` parse the text; ``fence``
and ``functions`` define what is allowed in it; ``text`` finds the fields and functions that it uses; ``cost`` estimates
its cost; ``checks`` tries it before there are records. ``fields`` makes typed columns of values without schemas.
"""
