"""The checks of a sink's topics."""

from __future__ import annotations

import pytest

from penstock.config import ConfigValue
from penstock.errors import ConfigException
from penstock.settings.topics import check_topics, parse_topics_list, require_valid_topics

DLQ = "errors.deadletterqueue.topic.name"


def _faults(**config: str) -> dict[str, list[str]]:
    found: dict[str, ConfigValue] = {}
    names = {"topics": "topics", "regex": "topics.regex", "dlq": DLQ}
    check_topics({names[name]: value for name, value in config.items()}, found)
    return {name: value.error_messages for name, value in found.items()}


def test_the_dead_letter_queue_may_not_be_a_topic_that_is_read() -> None:
    assert _faults(topics="a, dead", dlq=" dead ") == {
        "topics": [
            "The DLQ topic 'dead' may not be included in the list of topics ('topics=[a, dead]') consumed by the "
            "connector"
        ]
    }
    assert _faults(regex="de.d", dlq="dead") == {
        "topics.regex": [
            "The DLQ topic 'dead' may not be matched by the regex for the topics ('topics.regex=de.d') consumed by the "
            "connector"
        ]
    }


@pytest.mark.parametrize("regex", ["de", "ead", "("])
def test_the_regex_must_match_the_whole_name_and_a_wrong_one_is_a_fault_elsewhere(regex: str) -> None:
    assert _faults(regex=regex, dlq="dead") == {}


def test_both_and_none_of_topics_and_regex_are_faults_of_both() -> None:
    both = ["topics and topics.regex are mutually exclusive options, but both are set."]
    assert _faults(topics="a", regex="b") == {"topics": both, "topics.regex": both}
    none = ["Must configure one of topics or topics.regex"]
    assert _faults(topics=" ", regex="") == {"topics": none, "topics.regex": none}


def test_faults_are_added_to_those_that_are_known() -> None:
    found = {"topics": ConfigValue("topics", [], error_messages=["first"])}
    check_topics({}, found)
    assert found["topics"].error_messages == ["first", "Must configure one of topics or topics.regex"]
    assert found["topics.regex"].value is None


def test_a_start_is_refused_with_the_first_fault() -> None:
    with pytest.raises(ConfigException, match="Invalid value a,b for configuration topics: topics and "):
        require_valid_topics({"topics": "a,b", "topics.regex": "c"})
    require_valid_topics({"topics": "a,b", DLQ: "c"})


def test_topics_are_listed_once_and_without_empty_names() -> None:
    assert parse_topics_list({"topics": " b ,, a,b"}) == ["b", "a"]
    assert parse_topics_list({}) == []
