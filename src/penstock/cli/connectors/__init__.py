"""``penstock connectors``: a worker's connectors from the command line.

``commands`` has the command group, and shows, starts and stops connectors; ``configurations`` creates, validates and
previews, from ``files``; ``backfills`` reads ranges again.
"""
