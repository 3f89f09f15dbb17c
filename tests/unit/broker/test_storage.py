import os
import stat
from pathlib import Path

import javaproperties
import pytest

from penstock.broker.storage import (
    BrokerException,
    new_cluster_id,
    node_properties,
    stored_cluster_id,
    write_configuration,
)


def test_a_node_is_broker_and_controller_and_overrides_win(tmp_path: Path) -> None:
    properties = node_properties(tmp_path, "127.0.0.1", 9092, 9093, {"num.partitions": "4"})

    assert properties["process.roles"] == "broker,controller"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert properties["auto.create.topics.enable"] == "true"
    assert properties["offsets.topic.replication.factor"] == "1"
    assert properties["num.partitions"] == "4"


def test_the_configuration_reads_back_as_it_was_meant(tmp_path: Path) -> None:
    directory = tmp_path / "a b\\c"

    path = write_configuration(directory, {"log.dirs": str(directory / "log"), "x": "1"}, "WARN")

    with path.open(encoding="utf-8") as file:
        assert javaproperties.load(file) == {"log.dirs": str(directory / "log"), "x": "1"}
    with (directory / "log4j2.properties").open(encoding="utf-8") as file:
        logging = javaproperties.load(file)
    assert logging["appender.file.fileName"] == str(directory / "server.log")
    assert logging["rootLogger.level"] == "WARN"


def test_a_directory_that_cannot_be_made_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(BrokerException, match="file/data cannot be written to: Not a directory; choose another"):
        write_configuration(tmp_path / "file" / "data", {}, "WARN")


def test_storage_belongs_to_a_cluster_once_it_is_formatted(tmp_path: Path) -> None:
    properties = {"log.dirs": str(tmp_path)}
    assert stored_cluster_id(properties) is None

    (tmp_path / "meta.properties").write_text("#\nversion=1\ncluster.id=abc\n", encoding="utf-8")
    assert stored_cluster_id(properties) == "abc"

    (tmp_path / "meta.properties").write_text("", encoding="utf-8")
    with pytest.raises(BrokerException, match="names no cluster"):
        stored_cluster_id(properties)


def test_cluster_ids_have_kafkas_form_and_differ() -> None:
    ids = {new_cluster_id() for _ in range(200)}

    assert len(ids) == 200
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)


def test_the_directory_of_a_node_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_configuration(tmp_path / "node", {}, "WARN")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "node").stat().st_mode) == 0o700
