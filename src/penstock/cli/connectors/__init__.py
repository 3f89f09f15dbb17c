"""``penstock connectors``: a worker's connectors from the command line.

``commands`` has the command group, which shows, starts and stops connectors and runs backfills; ``configurations``
creates, validates and previews connectors from files.
"""
