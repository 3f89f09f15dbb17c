"""The settings for the location of files: ``StoreConfig``. Values; any thread.

Source: the settings of Confluent's connectors for Amazon S3, Google Cloud Storage, Azure Blob Storage and HDFS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.config import AbsentSetting, AbstractConfig, Importance, Password, Range, ValidString, setting
from penstock.files.stores import Location
from penstock.files.stores.s3 import S3Options

OFF: Final = ("false",)
#: Settings of stores in Java's connectors that are not there.
STORES_ABSENT: Final[Mapping[str, AbsentSetting]] = {
    "hdfs.authentication.kerberos": AbsentSetting(
        "log in with kinit: the Hadoop client takes the ticket of its cache", OFF
    ),
    "s3.sse.customer.key": AbsentSetting("keys of customers are not there; use s3.ssea.name=aws:kms"),
    "s3.credentials.provider.class": AbsentSetting(
        "classes of Java do not run here; the default chain of boto3 finds environment, profiles and roles",
        ("", "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"),
    ),
    "gcs.credentials.path": AbsentSetting("name the file in the environment: GOOGLE_APPLICATION_CREDENTIALS"),
    "gcs.credentials.json": AbsentSetting("write it into a file, and name that in GOOGLE_APPLICATION_CREDENTIALS"),
    "azblob.connection.string": AbsentSetting("set azblob.account.name and azblob.account.key"),
}


class StoreConfig(AbstractConfig):
    """The address of a store, and how it is spoken to.

    Source: the settings of Confluent's connectors for Amazon S3, Google Cloud Storage, Azure Blob Storage and HDFS.
    """

    url: str = setting(
        default="",
        importance=Importance.HIGH,
        doc="Where the files are: a path, file:///PATH, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, "
        "abfss://CONTAINER@ACCOUNT/PREFIX, hdfs://HOST:PORT/PATH, or an address of fsspec.",
    )
    s3_bucket_name: str = setting(default="", importance=Importance.HIGH, doc="The bucket, if url does not say it.")
    s3_region: str | None = setting(default=None, doc="The region of the bucket; left out: as boto3 finds it.")
    store_url: str = setting(
        default="", doc="The address of another store than Amazon's that speaks S3; without a bucket: the same as url."
    )
    s3_path_style_access_enabled: bool = setting(
        default=True, doc="The bucket stands in the path of addresses, not in the name of the host."
    )
    aws_access_key_id: str | None = setting(
        default=None, doc="Who logs in at S3; left out: the default chain of boto3 (environment, profile, role)."
    )
    aws_secret_access_key: Password | None = setting(default=None, doc="The secret that belongs to it.")
    aws_session_token: Password | None = setting(default=None, doc="The token, where they are of a session.")
    s3_part_size: int = setting(
        default=26_214_400, validator=Range.at_least(5 << 20), doc="The bytes of a part of a multipart upload."
    )
    s3_part_retries: int = setting(
        default=3, validator=Range.at_least(0), doc="How often the client tries again by itself."
    )
    s3_ssea_name: str = setting(
        default="", validator=ValidString("", "AES256", "aws:kms"), doc="The encryption by the server."
    )
    s3_sse_kms_key_id: str = setting(default="", doc="The key of s3.ssea.name=aws:kms.")
    s3_acl_canned: str = setting(default="", importance=Importance.LOW, doc="A canned ACL of objects.")
    s3_proxy_url: str = setting(default="", importance=Importance.LOW, doc="The address of a proxy.")
    s3_ca_location: str = setting(
        default="", doc="A file with the authorities whose certificates are trusted; left out: those of boto3."
    )
    gcs_bucket_name: str = setting(default="", doc="The bucket of Google Cloud Storage, if url does not say it.")
    azblob_container_name: str = setting(default="", doc="The container of Azure, if url does not say it.")
    azblob_account_name: str = setting(default="", doc="The account of Azure.")
    azblob_account_key: Password | None = setting(default=None, doc="Its key; left out: Azure's default chain.")
    store_timeout_ms: int = setting(
        default=20_000,
        validator=Range.at_least(100),
        doc="How long a store may take to answer before the call ends, and is made again after retry.backoff.ms.",
    )
    hdfs_url: str = setting(default="", doc="The address of HDFS, if url does not say it.")

    def location(self) -> Location:
        """The address of the store, with its options."""
        secret = self.azblob_account_key.value if self.azblob_account_key else None
        url = self.url or self.hdfs_url
        if not url and self.s3_bucket_name:
            url = f"s3://{self.s3_bucket_name}"
        elif not url and self.gcs_bucket_name:
            url = f"gs://{self.gcs_bucket_name}"
        elif not url and self.azblob_container_name:
            url = f"abfss://{self.azblob_container_name}@{self.azblob_account_name}.dfs.core.windows.net"
        elif not url and not self._is_endpoint:
            url = self.store_url
        scheme, _, rest = url.partition("://")
        s3 = None
        if scheme.lower() in ("s3", "s3a", "s3n"):
            bucket, _, prefix = rest.partition("/")
            s3 = self._s3(bucket, prefix.strip("/"))
        return Location(url, s3, self.azblob_account_name, secret, self.store_timeout_ms / 1000)

    @property
    def _is_endpoint(self) -> bool:
        """True if ``store.url`` is the address of a server that has buckets."""
        return self.store_url.partition("://")[0].lower() in ("http", "https")

    def missing_place(self, otherwise: str) -> tuple[str, str]:
        """The setting that would say where the files are, and a text for people.

        Args:
            otherwise: The text for ``url``.
        """
        if self._is_endpoint:
            return "s3.bucket.name", f"has no value, and {self.store_url} (store.url) is a store with buckets"
        return "url", otherwise

    def _s3(self, bucket: str, prefix: str) -> S3Options:
        return S3Options(
            bucket,
            prefix,
            self.s3_region or None,
            self.store_url or None,
            self.s3_path_style_access_enabled,
            self.aws_access_key_id or None,
            self.aws_secret_access_key.value if self.aws_secret_access_key else None,
            self.aws_session_token.value if self.aws_session_token else None,
            self.s3_ca_location or None,
            self.s3_part_size,
            self.s3_ssea_name,
            self.s3_sse_kms_key_id,
            self.s3_acl_canned,
            self.s3_part_retries,
            self.s3_proxy_url,
            self.store_timeout_ms / 1000,
        )
