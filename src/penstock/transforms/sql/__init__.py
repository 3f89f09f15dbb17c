"""``Sql``: Spark SQL over whole frames.

``Sql`` (``transform``) turns the user's expressions into a select. ``reader`` parses the text and
estimates its cost; ``fence`` and ``functions`` define what is allowed in it; ``text`` has its tokens, and finds the
fields and functions that it uses; ``checks`` tries it before there are records. ``fields`` makes typed columns of
values without schemas.
"""
