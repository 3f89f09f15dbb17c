"""``penstock connectors``: a worker's connectors from the command line.

``commands`` has the command group: it shows, starts and stops connectors, and reads ranges again;
``configurations`` creates, validates and previews, from files.
"""
