"""Tests of every transform that works on one record at a time.

Main type: ``TransformSuite``. Those of a transform that works on frames are in ``frame_transforms``.

Owning thread: the test's.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from penstock.api import ConnectRecord, SinkRecord, SourceRecord
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct, validate_value
from penstock.testing.kit.suites.plugins import PluginSuite

_OTHER = SchemaBuilder.struct().name("Other").field("nobody_has_this", INT32_SCHEMA).build()


class TransformSuite(PluginSuite):
    """The tests of a ``Transformation``. Subclass it in a test module, and say what it is given.

    Attributes:
        transform: The class.
        settings: Settings that are right.

    Source: Penstock's own.
    """

    transform: ClassVar[type[Any]]

    def records(self) -> Sequence[ConnectRecord]:
        """Records that the transform takes: with a schema and without, of sources and of sinks."""
        raise NotImplementedError(f"{type(self).__name__} needs records(self), which gives records to transform")

    def make(self, settings: Mapping[str, str] | None = None) -> Any:
        """See ``PluginSuite``."""
        made = self.kept(self.transform())
        made.configure(dict(self.settings if settings is None else settings))
        return made

    # -------------------------------------------------------------------------------------------------------- tests
    def test_records_come_out_as_their_schemas_say(self) -> None:
        """Keys, values and headers fit their schemas, and there is a topic."""
        for found in self._applied(self.records()):
            if not isinstance(found, Exception) and found is not None:
                _check(found)

    def test_the_record_that_is_given_does_not_change(self) -> None:
        """It may be tried again, or be a dead letter."""
        for record in self.records():
            before = copy.deepcopy(parts_of(record))
            (found,) = self._applied([record])
            assert parts_of(record) == before, f"the record was {before} and is {parts_of(record)}"
            if isinstance(found, ConnectRecord) and found is not record:
                found.headers.add_string("kit", "added later")
                assert parts_of(record) == before, "the headers of the new record are those of the one that was given"

    def test_what_is_about_the_place_of_a_record_stays(self) -> None:
        """A source record keeps its partition and offset, a sink record what it was read from."""
        given = self.records()
        for record, found in zip(given, self._applied(given), strict=True):
            if not isinstance(found, ConnectRecord):
                continue
            assert type(found) is type(record)
            names = (
                ("source_partition", "source_offset")
                if isinstance(record, SourceRecord)
                else ("original_topic", "original_kafka_partition", "original_kafka_offset")
            )
            for name in names:
                assert getattr(found, name) == getattr(record, name), f"{name} has changed"

    def test_nulls_are_taken_or_refused_with_an_error_that_says_why(self) -> None:
        """Tombstones, and records without a key, each with its schema and without."""
        record: Any
        given: list[ConnectRecord] = []
        for record in self.records():
            for side in ("key", "value"):
                for changes in ({side: None}, {side: None, f"{side}_schema": None}):
                    given.append(record.new_record(**changes))
        self._taken_or_told(given)

    def test_records_of_another_kind_are_taken_or_refused_with_an_error_that_says_why(self) -> None:
        """Values that are no structs or maps, and values without each field."""
        strange: Any = (
            (None, "text"),
            (None, 1),
            (None, b"x"),
            (None, [1]),
            (None, {}),
            (None, {1: 2}),
            (STRING_SCHEMA, "text"),
            (_OTHER, Struct(_OTHER).put("nobody_has_this", 1)),
        )
        record: Any
        given: list[ConnectRecord] = []
        for record in self.records()[:2]:
            for schema, value in strange:
                for side in ("key", "value"):
                    given.append(record.new_record(**{side: value, f"{side}_schema": schema}))
        self._taken_or_told(given)

    def test_a_stateless_transform_has_no_state(self) -> None:
        """A copy in another process, and an instance that has worked, give the same."""
        if not getattr(self.transform, "stateless", False):
            return
        made = self.make()
        there = pickle.loads(pickle.dumps(made))
        for record in self.records():
            first = made.apply(record)
            for other in (made, there, self.make()):
                again = other.apply(record)
                assert (first is None) == (again is None)
                assert first is None or parts_of(first) == parts_of(again), "another instance gives something else"

    def _applied(self, records: Sequence[ConnectRecord]) -> list[ConnectRecord | Exception | None]:
        """The outcome of each record: a record, None where it is dropped, or the error that it has.

        Each record gets an instance of its own. An error of any other class than ``told`` is raised here.
        """
        return [self._outcome(record) for record in records]

    def _outcome(self, record: ConnectRecord) -> ConnectRecord | Exception | None:
        made = self.make()
        try:
            found: ConnectRecord | None = made.apply(record)
            return found
        except Exception as error:
            return error

    def _taken_or_told(self, records: Sequence[ConnectRecord]) -> None:
        for record, found in zip(records, self._applied(records), strict=True):
            if isinstance(found, Exception) and not isinstance(found, self.told):
                raise AssertionError(
                    f"apply() raised {type(found).__name__}, which says nothing to a user, for the value "
                    f"{record.value!r} and the key {record.key!r}: {found}"
                ) from found
            if isinstance(found, ConnectRecord):
                _check(found)


def _check(record: ConnectRecord) -> None:
    assert record.topic, "a record has no topic"
    for side in ("key", "value"):
        schema, value = getattr(record, f"{side}_schema"), getattr(record, side)
        if schema is not None and value is not None:
            validate_value(schema, value)


def parts_of(record: Any) -> tuple[object, ...]:
    headers = [(one.key, one.schema, one.value) for one in record.raw_headers or ()]
    place = (
        (record.original_kafka_offset,)
        if isinstance(record, SinkRecord)
        else (record.source_partition, record.source_offset)
    )
    schemas = (record.key_schema, record.value_schema)
    return (record.topic, record.kafka_partition, *schemas, record.key, record.value, record.timestamp, headers, place)
