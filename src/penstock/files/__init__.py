"""Files in directories and object stores, for connectors that write or read them. Public.

Start from:

- ``RollingFiles`` (``rolling``): the files of a sink task, closed by a ``Rotation`` and named by ``FileNames``
  (``generations``, pure decisions, with ``Rows``). ``publishing`` sends closed files, and stores rows that do not fit
  into memory; ``manifests`` commits files of many partitions, and finds other connectors that write the same files;
  ``widening`` finds types that hold the values of two types.
- ``Store`` (``store``): directories, buckets (``s3``) and file systems (``arrow``) under one interface, each created
  from its address (``location``).
- ``StoreConfig`` (``location``): the settings for the location of files, with the names of Confluent's connectors.

Authors import these names from here. The connectors that use them are in ``penstock.connectors.files``; a store in
memory for tests is ``MemoryStore`` of ``penstock.testing``.
"""

from penstock.files.generations import FileNames, Rotation, Rows
from penstock.files.location import Location, StoreConfig, open_store
from penstock.files.manifests import Owners
from penstock.files.publishing import Beside, FileWriter
from penstock.files.rolling import RollingFiles
from penstock.files.s3 import S3Options
from penstock.files.store import ChangedException, Found, GoneException, Store

__all__ = [
    "Beside",
    "ChangedException",
    "FileNames",
    "FileWriter",
    "Found",
    "GoneException",
    "Location",
    "Owners",
    "RollingFiles",
    "Rotation",
    "Rows",
    "S3Options",
    "Store",
    "StoreConfig",
    "open_store",
]
