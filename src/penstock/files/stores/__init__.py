"""Places for files: directories, buckets, and what PyArrow and fsspec reach. ``Store`` (``store``) says what they do.

- ``directory``: a directory of this computer, or one that is mounted.
- ``s3``: Amazon S3 and stores that speak its protocol; needs boto3.
- ``arrow``: HDFS, Google Cloud Storage, Azure, and every file system of fsspec.
- ``opening``: which of them an address needs.
"""

from penstock.files.stores.faults import ChangedException, GoneException
from penstock.files.stores.opening import Location, open_store
from penstock.files.stores.store import Found, Store

__all__ = ["ChangedException", "Found", "GoneException", "Location", "Store", "open_store"]
