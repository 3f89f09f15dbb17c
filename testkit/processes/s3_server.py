"""A server that speaks Amazon S3 as a process of its own, for tests and faults: one of two code bases.

Main type: `S3Server`; `installed` says which program there is beside moto's. Thread: the caller's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from penstock.broker.jars import free_port

#: Names the program of ``s3s-fs``, where that is not on the PATH.
PROGRAM: Final = "PENSTOCK_S3S_FS"
KEY_ID, SECRET, REGION = "id", "secret", "us-east-1"
_TIME_S: Final = 60


def installed() -> str | None:
    """The program of ``s3s-fs``, a server that keeps objects in a directory; None: there is none."""
    return shutil.which(os.environ.get(PROGRAM) or "s3s-fs")


class S3Server:
    """A server on the loopback address with one bucket.

    As a context manager it is started and stopped.

    Args:
        directory: Where its log and, with a program, its objects are.
        program: That of ``s3s-fs``, which may be killed and started again; None: moto's server, which forgets all.
        bucket: The bucket.
        port: Where clients connect; a free one if left out.
    """

    def __init__(self, directory: Path, program: str | None = None, bucket: str = "lake", port: int = 0) -> None:
        self.program, self.bucket = program, bucket
        self.port = port or free_port()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Starts it and waits until its bucket is there.

        Raises:
            AssertionError: It does not answer in time.
        """
        objects = self._directory / "objects"
        objects.mkdir(parents=True, exist_ok=True)
        if self.program is None:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        else:
            login = ["--access-key", KEY_ID, "--secret-key", SECRET]
            command = [self.program, "--host", "127.0.0.1", "--port", str(self.port), *login, str(objects)]
        with (self._directory / "log").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)
        began = time.monotonic()
        while not self._answers():
            assert self._process.poll() is None, self.log
            assert time.monotonic() - began < _TIME_S, f"{command[0]} does not answer\n{self.log}"

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def log(self) -> str:
        """The end of what it has printed."""
        return (self._directory / "log").read_text(errors="replace")[-3000:]

    def client(self) -> Any:
        """A client of boto3."""
        import boto3
        from botocore.config import Config
        from botocore.handlers import set_list_objects_encoding_type_url

        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )
        # `s3s-fs` says that names are encoded, which they are not.
        client.meta.events.unregister("before-parameter-build.s3.ListObjectsV2", set_list_objects_encoding_type_url)
        return client

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        """The objects whose keys begin with a text; one that goes meanwhile is left out."""
        found: dict[str, bytes] = {}
        with closing(self.client()) as client:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
                for key in (one["Key"] for one in page.get("Contents", ())):
                    with suppress(client.exceptions.NoSuchKey):
                        found[key] = client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return found

    def _answers(self) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        with closing(self.client()) as client:
            try:
                if self.bucket not in {one["Name"] for one in client.list_buckets()["Buckets"]}:
                    client.create_bucket(Bucket=self.bucket)
            except (BotoCoreError, ClientError):
                time.sleep(0.1)
                return False
        return True
