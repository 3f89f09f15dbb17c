"""Settings of the file source whose words are Java's."""

from __future__ import annotations

import pytest

from penstock.connectors.files.source.settings import FileSourceConfig
from penstock.errors import ConfigException

SETTINGS = {"url": "/in", "topic": "t"}


@pytest.mark.parametrize("setting", ["input.file.pattern", "file.filter.regex.pattern"])
@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        (r"^.*\.csv$", "a.csv", "a.csv.gz"),
        (r"(?<day>\d{2})-\p{Upper}++\.csv", "12-ABC.csv", "12-abc.csv"),
        (r"\Qa.b\E[a-z&&[^x]]", "a.bc", "a.bx"),
        (r"\p{L}+\.txt", "größe.txt", "1.txt"),
        (r"(?i)A.*", "abc", "bc"),
    ],
)
def test_names_of_files_match_patterns_of_java(setting: str, pattern: str, taken: str, left: str) -> None:
    found = FileSourceConfig.parse({**SETTINGS, setting: pattern}).pattern
    assert found is not None
    assert (found.matches(taken), found.matches(left)) == (True, False)


def test_a_pattern_that_is_none_is_refused_with_its_place() -> None:
    with pytest.raises(
        ConfigException, match=r"input.file.pattern: Invalid regex: Unclosed character class near index"
    ):
        FileSourceConfig.parse({**SETTINGS, "input.file.pattern": "[a"})
    with pytest.raises(ConfigException, match=r"topic.regex.list: has t:\[a: .*Unclosed character class"):
        FileSourceConfig.parse({**SETTINGS, "topic.regex.list": "t:[a"})


def test_a_store_without_its_bucket_is_a_fault_of_the_bucket() -> None:
    with pytest.raises(ConfigException, match=r"^s3.bucket.name: has no value, and http://h:1 \(store.url\)"):
        FileSourceConfig.parse({"topic": "t", "store.url": "http://h:1"})
