"""Random chains on random records, through Penstock's pipeline and through Kafka Connect's own classes.

``python -m differential`` runs it; see ``differential/__main__.py``.
"""
