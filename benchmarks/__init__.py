"""Measures Penstock against Java Kafka Connect on one machine, in turn, with the same broker, input and settings.

Run it with `bin/bench`. `METHODOLOGY.md` beside this file says what is measured and how.
"""
