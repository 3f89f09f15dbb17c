"""Converters of numbers take a number without a schema when its class says that it is as wide as theirs."""

from __future__ import annotations

import pytest
from conformance.vectors.codec import BigInteger, Float32, Int8, Int16, Int32

from penstock.converters.primitives import (
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
)
from penstock.errors import DataException

NUMBERS = {
    "java.lang.Byte": Int8(5),
    "java.lang.Short": Int16(5),
    "java.lang.Integer": Int32(5),
    "java.lang.Long": 5,
    "java.lang.Float": Float32(1.5),
    "java.lang.Double": 1.5,
}
WRITTEN = {
    ShortConverter: ("java.lang.Short", b"\0\5"),
    IntegerConverter: ("java.lang.Integer", b"\0\0\0\5"),
    LongConverter: ("java.lang.Long", b"\0\0\0\0\0\0\0\5"),
    FloatConverter: ("java.lang.Float", b"\x3f\xc0\0\0"),
    DoubleConverter: ("java.lang.Double", b"\x3f\xf8\0\0\0\0\0\0"),
}


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("java", NUMBERS)
def test_each_takes_its_own_width_and_refuses_the_others(java: str, kind: type[IntegerConverter]) -> None:
    converter = kind()
    converter.configure({}, False)
    own, data = WRITTEN[kind]
    if java == own:
        assert converter.from_connect_data("t", None, NUMBERS[java]) == data
        return
    with pytest.raises(DataException, match=rf"was class {java}"):
        converter.from_connect_data("t", None, NUMBERS[java])


def test_what_is_no_number_of_connect_is_refused() -> None:
    converter = LongConverter()
    converter.configure({}, False)
    with pytest.raises(DataException):
        converter.from_connect_data("t", None, BigInteger(5))
