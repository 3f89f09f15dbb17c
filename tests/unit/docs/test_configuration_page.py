"""``docs/configuration.md`` says what the definitions of settings say."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from tools.reference.settings import FIELDS, MARK, page, without_effect

from penstock.settings import (
    DISTRIBUTED,
    SINK,
    SOURCE,
    STANDALONE,
    SinkSettings,
    SourceSettings,
    StandaloneSettings,
)

ROOT = Path(__file__).parents[3]


def test_the_page_is_current() -> None:
    committed = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")

    assert committed == page(), "run: python -m tools.reference.settings docs/configuration.md"


def test_settings_without_effect_are_settings_with_such_a_field() -> None:
    assert FIELDS.keys() <= STANDALONE.keys.keys() | SOURCE.keys.keys() | SINK.keys.keys()
    parsed = {one.name for kind in (StandaloneSettings, SourceSettings, SinkSettings) for one in fields(kind)}

    assert {field for field in FIELDS.values() if field} <= parsed


def test_settings_without_effect_are_marked_on_the_page() -> None:
    marked = {line.split("`")[1] for line in page().split("\n") if f"` {MARK} |" in line}

    assert marked == without_effect()


def test_every_setting_is_on_the_page() -> None:
    text = page()

    assert [
        name
        for name in (*STANDALONE.names(), *DISTRIBUTED.names(), *SOURCE.names(), *SINK.names())
        if f"`{name}`" not in text
    ] == []
