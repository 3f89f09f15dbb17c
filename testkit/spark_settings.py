"""Spark settings for tests. Main object: ``QUICK_START``."""

from typing import Final

#: The JVM's first compiler alone: a session is there in two thirds of the time, and no test runs for long.
QUICK_START: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
