"""A number that is short as text and has a billion digits costs nothing."""

from __future__ import annotations

import pytest

from penstock.converters.json.converter import JsonConverter


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("number", ["1e999999999", "-7.5E+100000000", "1e-999999999", "12e64"])
def test_an_integer_of_a_huge_number_is_its_lowest_bits(kind: str, number: str) -> None:
    """As Java's ``BigDecimal.longValue``: of a multiple of two to the 64th nothing is left."""
    converter = JsonConverter()
    converter.configure({}, False)
    message = f'{{"schema":{{"type":"{kind}"}},"payload":{number}}}'

    assert converter.to_connect_data("t", message.encode()).value == 0


def test_an_integer_that_is_written_with_an_exponent_is_read() -> None:
    converter = JsonConverter()
    converter.configure({}, False)

    assert converter.to_connect_data("t", b'{"schema":{"type":"int64"},"payload":1.2e3}').value == 1200
    assert converter.to_connect_data("t", b'{"schema":{"type":"int8"},"payload":1e3}').value == 1000 % 256 - 256
