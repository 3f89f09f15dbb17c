"""``docs/configuration.md`` says what the definitions of settings say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.settings import SINK, SOURCE, STANDALONE
from penstock.testing.reference.settings import UNUSED_CONNECTOR, UNUSED_WORKER, page

ROOT = Path(__file__).parents[3]
SOURCES = [
    path.read_text(encoding="utf-8")
    for path in (ROOT / "src/penstock").rglob("*.py")
    if not {"settings", "testing"} & set(path.relative_to(ROOT / "src/penstock").parts)
]


def test_the_page_is_current() -> None:
    committed = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")

    assert committed == page(), "run: python -m penstock.testing.reference.settings docs/configuration.md"


@pytest.mark.parametrize("field", [field for field in {**UNUSED_WORKER, **UNUSED_CONNECTOR}.values() if field])
def test_what_the_page_calls_without_effect_is_used_nowhere(field: str) -> None:
    used = any(re.search(rf"\.{field}\b", text) for text in SOURCES)

    assert not used, (
        "take its setting out of UNUSED_* in penstock/testing/reference/settings.py and make the page again"
    )


def test_settings_without_effect_are_settings() -> None:
    assert UNUSED_WORKER.keys() <= STANDALONE.keys.keys()
    assert UNUSED_CONNECTOR.keys() <= SOURCE.keys.keys() | SINK.keys.keys()


def test_every_setting_is_on_the_page() -> None:
    text = page()

    assert [name for name in (*STANDALONE.names(), *SOURCE.names(), *SINK.names()) if f"`{name}`" not in text] == []
