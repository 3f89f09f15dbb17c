"""Chooses the reader of a file, by the settings and its name. Main type: ``Readers``. Pure; any thread."""

from __future__ import annotations

from penstock.api.arrow import arrow_type
from penstock.connectors.files.source.readers.columnar import AvroReader, OrcReader, ParquetReader
from penstock.connectors.files.source.readers.csv import CsvDialect, CsvReader
from penstock.connectors.files.source.readers.json_lines import JsonLinesReader
from penstock.connectors.files.source.readers.lines import JsonTextsReader, LinesReader, WholeFileReader
from penstock.connectors.files.source.readers.reader import BadFileException, FormatReader
from penstock.connectors.files.source.readers.text import compression_of
from penstock.connectors.files.source.readers.xml import XmlReader
from penstock.connectors.files.source.settings import ENDINGS, FileSourceConfig
from penstock.files import Found


class Readers:
    """Makes the reader of a file.

    Args:
        config: The settings.
        connector: The configured class of the connector.
    """

    def __init__(self, config: FileSourceConfig, connector: str) -> None:
        self._config, self._format = config, config.format(connector)
        schema = config.values
        fields = () if schema is None else schema.fields
        self._types = {one.name: arrow_type(one.schema) for one in fields}
        self._readers: dict[str, FormatReader] = {}

    def of(self, found: Found) -> FormatReader:
        """The reader of a file.

        Raises:
            BadFileException: Its name has no known format.
        """
        kind = self.kind(found)
        if kind is None:
            raise BadFileException(
                "has a name that tells no format: set format.class, or input.file.pattern to the files that are to be "
                f"read; what is known are the endings {', '.join(ENDINGS)}, each also with .gz, .zst, .bz2, .lz4 or .xz"
            )
        if kind == "csv":
            return self._readers.setdefault(self._ending(found), self._made(kind, found))
        return self._readers.setdefault(kind, self._made(kind, found))

    def beside(self, found: Found) -> FormatReader:
        """The reader of a separate file of keys or headers; its name determines the format.

        Raises:
            BadFileException: Its name has no known format.
        """
        match ENDINGS.get(self._ending(found)):
            case "json":
                return JsonTextsReader(self._config.encoding)
            case "bytes" | "text":
                return LinesReader(self._config.encoding)
            case "csv":
                return CsvReader(CsvDialect(infers=False), {})
            case "parquet" | "orc" | "avro" as kind:
                return self._made(kind, found)
        raise BadFileException(
            f"has the file {found.name} next to it, whose name has no known format: set store.kafka.keys=false and "
            "store.kafka.headers=false to ignore such files"
        )

    def kind(self, found: Found) -> str | None:
        """The format of a file; None if its name has none."""
        return ENDINGS.get(self._ending(found)) if self._format == "auto" else self._format

    def share(self, found: Found) -> int:
        """The bytes of the parts in which a file is read; 0: it is read as a whole."""
        most = self._config.split_bytes
        if not most or found.size <= most or compression_of(found.name) is not None or self._config.restores:
            return 0
        kind = self.kind(found)
        if kind is None or not self.of(found).splits:
            return 0
        if kind != "parquet" and self._config.encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "ascii"):
            return 0
        return most

    def _ending(self, found: Found) -> str:
        name = found.name.rsplit(".", 1)[0] if compression_of(found.name) else found.name
        return name.rpartition(".")[2].lower()

    def _made(self, kind: str, found: Found) -> FormatReader:
        encoding = self._config.encoding
        match kind:
            case "csv":
                return CsvReader(self._config.dialect(self._ending(found)), self._types)
            case "json":
                return JsonLinesReader(self._types, encoding)
            case "json-text":
                return LinesReader(encoding, skip_empty=True)
            case "text":
                return LinesReader(encoding)
            case "parquet":
                return ParquetReader()
            case "orc":
                return OrcReader()
            case "avro":
                return AvroReader()
            case "xml":
                return XmlReader(self._config.xml_row_tag)
        return WholeFileReader()
