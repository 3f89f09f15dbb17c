# A source that greets once a second, and goes on counting after a restart.
from penstock.api import Chunk, PartitionedSource
from penstock.config import AbstractConfig, setting


class HelloConfig(AbstractConfig):
    topic: str = setting(doc="Where the greetings go.")


class HelloSource(PartitionedSource):
    config_class = HelloConfig

    def read(self, partition, offset):
        count = offset["count"] + 1 if offset else 1
        yield Chunk([f"hello {count}"], self.settings.topic, {"count": count})
