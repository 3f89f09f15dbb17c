"""The text of columns: Java's, made by Arrow (``arrow``, ``numbers``) or value by value (``values``), and JSON made by
Spark (``json``).
"""
