"""Stores for files: directories, buckets, and file systems of PyArrow and fsspec. ``Store`` (``store``) is their
interface.

- ``directory``: a local or mounted directory.
- ``s3``: Amazon S3 and stores that speak its protocol; needs boto3.
- ``arrow``: HDFS, Google Cloud Storage, Azure, and every file system of fsspec.
- ``opening``: selects the store for an address.
"""

from penstock.files.stores.opening import Location, open_store
from penstock.files.stores.store import ChangedException, Found, GoneException, Store

__all__ = ["ChangedException", "Found", "GoneException", "Location", "Store", "open_store"]
