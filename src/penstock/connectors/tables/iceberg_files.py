"""The entry of a data file in Iceberg's manifests, as values of JSON, for files that another task commits.

Main functions: ``described``, and its inverse ``data_file``. Pure; any thread.

Source: Apache Iceberg's specification, "Manifests", and "Binary single-value serialization".
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

_COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS: Final = ("lower_bounds", "upper_bounds")


def described(file: DataFile, metadata: TableMetadata) -> dict[str, Any]:
    """The entry of a file."""
    kinds = metadata.spec().partition_type(metadata.schema()).fields
    return {
        "path": file.file_path,
        "format": file.file_format.value,
        "rows": file.record_count,
        "size": file.file_size_in_bytes,
        "partition": [
            None if file.partition[at] is None else _text(to_bytes(one.field_type, file.partition[at]))  # type: ignore[arg-type]
            for at, one in enumerate(kinds)
        ],
        "split_offsets": file.split_offsets,
        **{name: {str(one): count for one, count in (getattr(file, name) or {}).items()} for name in _COUNTS},
        **{name: {str(one): _text(bound) for one, bound in (getattr(file, name) or {}).items()} for name in _BOUNDS},
    }


def data_file(said: Mapping[str, Any], metadata: TableMetadata) -> DataFile:
    """The file for its description, with the partitions of the table."""
    kinds = metadata.spec().partition_type(metadata.schema()).fields
    partition = [
        None if text is None else from_bytes(one.field_type, base64.b64decode(text))  # type: ignore[arg-type]
        for one, text in zip(kinds, said["partition"], strict=True)
    ]
    sizes: dict[str, Any] = {name: {int(one): count for one, count in said[name].items()} for name in _COUNTS}
    bounds: dict[str, Any] = {
        name: {int(one): base64.b64decode(bound) for one, bound in said[name].items()} for name in _BOUNDS
    }
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=said["path"],
        file_format=said["format"],
        partition=Record(*partition),
        record_count=said["rows"],
        file_size_in_bytes=said["size"],
        split_offsets=said["split_offsets"],
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **sizes,
        **bounds,
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
