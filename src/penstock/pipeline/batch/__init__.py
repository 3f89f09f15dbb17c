"""The path of a batch through Spark: groups, segments, and the assembly of results.

Start from ``source`` and ``sink``, the whole path in each direction. ``groups`` has records as columns and decides
which go through ``row_path`` one by one instead; ``segments`` splits a chain where Python has to run between plans,
which are ``frames`` and ``stateless``. ``Failures`` (``batches``) has the errors by record; ``penstock.worker`` decides
what to do with them.
"""
