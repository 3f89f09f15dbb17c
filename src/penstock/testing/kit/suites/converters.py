"""Tests of every converter of keys and values.

Main type: ``ConverterSuite``.

Owning thread: the test's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from penstock.api import Converter
from penstock.data import ConnectHeaders, Schema, validate_value
from penstock.testing.kit.suites.plugins import PluginSuite

#: Bytes that another program may have written to a topic.
_ODD_BYTES: Final = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"\0\0\0\0\x01",
    b"{",
    b'{"schema":1,"payload":2}',
    b"null",
    b"\x80" * 40,
    bytes(1000),
)
_ODD_TOPICS: Final = ("t", "a.b-c_d", "T" * 249)


class ConverterSuite(PluginSuite):
    """The tests of a ``Converter``. Subclass it in a test module, and say what it converts.

    Attributes:
        converter: The class.
        settings: Settings that are right.
        lossless: False: values may come back as others.
        same_schema: False: schemas may come back with other names or parameters.
        sides: Whether it converts keys, values or both: True for keys.

    Source: Penstock's own.
    """

    converter: ClassVar[type[Converter]]
    lossless: ClassVar[bool] = True
    same_schema: ClassVar[bool] = True
    sides: ClassVar[Sequence[bool]] = (True, False)

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        """Schemas and values that it takes, as different from each other as can be."""
        raise NotImplementedError(f"{type(self).__name__} needs values(self), which gives what is converted")

    def make(self, settings: Mapping[str, str] | None = None, *, is_key: bool | None = None) -> Any:
        """See ``PluginSuite``."""
        made = self.kept(self.converter())
        made.configure(
            dict(self.settings if settings is None else settings), self.sides[0] if is_key is None else is_key
        )
        return made

    # -------------------------------------------------------------------------------------------------------- tests
    def test_values_come_back(self) -> None:
        """One by one, as keys and as values, from any topic: bytes that mean the same value and schema."""
        for is_key in self.sides:
            made = self.make(is_key=is_key)
            for topic in _ODD_TOPICS:
                for number, (schema, value) in enumerate(self.values()):
                    # Each has a topic of its own: a registry may refuse a schema that differs from another one.
                    found = self._there_and_back(made, f"{topic}{number}"[-249:], schema, value)
                    if self.lossless:
                        same = found.value == value if self.same_schema else str(found.value) == str(value)
                        assert same, f"{value!r} of {schema} came back as {found.value!r}"
                    if self.lossless and self.same_schema:
                        assert found.schema == schema, f"{value!r} of {schema} came back with {found.schema}"

    def test_another_instance_reads_what_one_has_written(self) -> None:
        """The reader is another worker, often of another day."""
        one, other, third = self.make(), self.make(), self.make()
        for number, (schema, value) in enumerate(self.values()):
            topic = f"t{number}"
            data = one.from_connect_data(topic, schema, value, None)
            again = other.to_connect_data(topic, data, None)
            first = third.to_connect_data(topic, data, None)
            assert (again.schema, again.value) == (first.schema, first.value)
            if again.schema is not None and again.value is not None:
                validate_value(again.schema, again.value)

    def test_null_is_a_tombstone(self) -> None:
        """Null without a schema has no bytes, and no bytes are null."""
        made = self.make()
        assert made.from_connect_data("t", None, None, None) is None
        found = made.to_connect_data("t", None, None)
        assert found.value is None
        assert found.schema is None or found.schema.optional

    def test_bytes_that_mean_nothing_are_refused_with_an_error_that_says_why(self) -> None:
        """Odd bytes, and messages that end too early or have a byte that is another one."""
        made = self.make()
        data = list(_ODD_BYTES)
        for number, (schema, value) in enumerate(self.values()):
            good = made.from_connect_data(f"t{number}", schema, value, None) or b""
            data += [good[: len(good) // 2], good[:-1], good + b"\0", *(_with_a_fault(good, at) for at in range(8))]
        for one in data:
            try:
                made.to_connect_data("t", one, None)
            except self.told:
                continue
            except Exception as error:
                raise AssertionError(
                    f"to_connect_data() raised {type(error).__name__}, which says nothing to a user, for {one[:40]!r}: "
                    f"{error}"
                ) from error

    def test_values_that_do_not_fit_are_refused_with_an_error_that_says_why(self) -> None:
        """Values of another type than the schema's, and objects that are no data."""
        made = self.make()
        strange = ("text", 1, 1 << 70, 1.5, b"x", [1], {"a": 1}, object())
        for schema in {id(one): one for one, _ in self.values()}.values():
            for value in strange:
                try:
                    made.from_connect_data("t", schema, value, None)
                except self.told:
                    continue
                except Exception as error:
                    raise AssertionError(
                        f"from_connect_data() raised {type(error).__name__}, which says nothing to a user, for "
                        f"{value!r} of {schema}: {error}"
                    ) from error

    def test_headers_are_not_changed(self) -> None:
        """A converter may look at the headers of a record."""
        made = self.make()
        headers = ConnectHeaders().add_string("a", "b")
        for number, (schema, value) in enumerate(self.values()):
            data = made.from_connect_data(f"t{number}", schema, value, headers)
            made.to_connect_data(f"t{number}", data, headers)
            assert [(one.key, one.value) for one in headers] == [("a", "b")]

    def _errors(self, made: Any, settings: Mapping[str, str]) -> dict[str, list[str]]:
        # A worker adds it, for converters that ask for it.
        return super()._errors(made, {"converter.type": "key" if self.sides[0] else "value", **settings})

    def _there_and_back(self, made: Any, topic: str, schema: Schema | None, value: object) -> Any:
        data = made.from_connect_data(topic, schema, value, None)
        assert data is None or isinstance(data, bytes), f"from_connect_data() gave a {type(data).__name__}"
        return made.to_connect_data(topic, data, None)


def _with_a_fault(data: bytes, at: int) -> bytes:
    """The bytes with one of them changed."""
    if not data:
        return b"\xff"
    place = at * len(data) // 8
    return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
