"""What the tests of files share: a topic of three partitions, and an S3 server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import boto3
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from moto.server import ThreadedMotoServer

from penstock.broker import EmbeddedBroker


class S3:
    """Moto's server, which may be stopped and started again on its port."""

    def __init__(self, port: int) -> None:
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.start()
        self.client = boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id="id", aws_secret_access_key="secret", region_name="us-east-1"
        )
        self.client.create_bucket(Bucket="archive")

    def start(self) -> None:
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def objects(self, prefix: str) -> dict[str, bytes]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="archive", Prefix=prefix)
        keys = [one["Key"] for page in pages for one in page.get("Contents", ())]
        return {key: self.client.get_object(Bucket="archive", Key=key)["Body"].read() for key in keys}


@pytest.fixture
def s3(free_port: int) -> Iterator[S3]:
    store = S3(free_port)
    yield store
    store.client.close()
    store.stop()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"events_{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 3, 1)]).values():
        future.result(30)
    return name
