"""Files in directories and object stores, for connectors that write or read them. Public.

Start from:

- ``RollingFiles`` (``rolling``): the files of a sink task, closed by a ``Rotation`` (``generations``, pure decisions,
  with ``Rows``), named by ``FileNames`` (``names``). ``publishing`` sends closed files, and stores rows that do not
  fit into memory; ``manifests`` commits files of many partitions, ``owners`` finds other connectors that write the
  same files, ``widening`` finds types that hold the values of two types.
- ``stores``: directories, buckets and file systems under one interface, each created from its address.
- ``StoreConfig`` (``settings``): the settings for the location of files, with the names of Confluent's connectors.

Authors import these names from here. The connectors that use them are in ``penstock.connectors.files``; a store in
memory for tests is ``MemoryStore`` of ``penstock.testing``.
"""

from penstock.files.generations import Rotation, Rows
from penstock.files.names import FileNames
from penstock.files.owners import Owners
from penstock.files.publishing import Beside, FileWriter
from penstock.files.rolling import RollingFiles
from penstock.files.settings import StoreConfig
from penstock.files.stores import ChangedException, Found, GoneException, Location, Store, open_store
from penstock.files.stores.s3 import S3Options

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
