"""What goes to executors, and how it is packed.

The archive for executors: what is in it, and that it can be imported.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from testkit.connectors.bulk_tasks import Marked
from testkit.processes.end_at import EndAt

import penstock
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import InstanceRecipe
from penstock.telemetry import no_probe
from penstock.worker.bulk import shipping as packing
from penstock.worker.bulk.shipping import (
    Parts,
    TransformRecipe,
    cannot_run,
    packed,
    probe_for_executors,
    refusal,
    shipped,
)


def test_a_probe_goes_only_where_it_is_made_for_that() -> None:
    assert probe_for_executors(lambda point: None) is no_probe
    end = EndAt("nowhere")
    assert probe_for_executors(end) is end
    assert pickle.loads(packed(end, "it")) == end
    packed(no_probe, "it")


def test_parts_are_made_where_they_arrive() -> None:
    json, header = InstanceRecipe(JsonConverter, {"schemas.enable": "false"}), InstanceRecipe(SimpleHeaderConverter, {})
    chain = (TransformRecipe("marked", InstanceRecipe(Marked, {"refuse": "x"}), None, False),)
    parts: Parts = pickle.loads(packed(Parts("orders", json, json, header, chain), "it"))
    key, value = parts.converters()
    assert value.from_connect_data("t", None, {"a": 1}) == b'{"a":1}'
    assert key is not value
    [stage] = parts.transforms()
    assert (stage.alias, type(stage.transformation), stage.props) == ("marked", Marked, {"refuse": "x"})


def test_what_cannot_be_packed_is_named() -> None:
    with pytest.raises(ConnectException, match="The work of it cannot be sent to Spark's executors"):
        packed(lambda: None, "The work of it")


@pytest.mark.parametrize(
    "text",
    [
        "Job aborted due to stage failure: Task 0 failed 4 times\njava.io.InvalidClassException: "
        "org.apache.spark.rdd.RDD; local class incompatible: stream classdesc serialVersionUID = 1, local class 2\n"
        "Driver stacktrace:",
        "java.lang.NoSuchMethodError: 'void org.apache.spark.scheduler.Task'",
    ],
)
def test_executors_with_another_version_of_spark_are_told_with_what_to_do(text: str) -> None:
    told = cannot_run(text, "4.3.0", [3, 13])
    assert "another version of Spark than the worker, which has 4.3.0: java." in told
    assert "Install Spark 4.3.0 on the master and the Spark workers" in told
    told = refusal(["have Spark 4.0.1, and the worker has 4.3.0"], "0.2", [3, 13])
    assert told.startswith("Executors of Spark have Spark 4.0.1, and the worker has 4.3.0")


def test_shipped_work_needs_nothing_of_penstock_until_it_is_called() -> None:
    from pyspark import cloudpickle

    sent = cloudpickle.dumps(shipped(pickle.dumps(_echo), ["/nowhere"]))
    assert b"penstock.worker.bulk.executor" not in sent
    work: Any = pickle.loads(sent)
    assert list(work(iter([1, 2]))) == [1, 2]


def _echo(batches: Any) -> Any:
    yield from batches


def test_what_executors_need_is_named_and_what_spark_has_is_not() -> None:
    needed = packing.needed()
    assert {"pyarrow", "confluent-kafka", "numpy"} <= set(needed)
    assert not {"pyspark", "py4j", "penstock", "fastapi"} & set(needed)


def test_an_archive_has_penstock_and_modules_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "needed", lambda: ["click"])  # a small one, in the place of PyArrow
    own = tmp_path / "own"
    (own / "__pycache__").mkdir(parents=True)
    (own / "__pycache__" / "x.pyc").touch()
    (own / "own_transform.py").write_text("HERE = True\n")
    target = tmp_path / "executors.tar.gz"
    assert packing.pack(target, [own]) == ["penstock", "click", "own"]

    with tarfile.open(target) as archive:
        assert not [name for name in archive.getnames() if "__pycache__" in name]
        archive.extractall(tmp_path / "there", filter="data")
    code = "import penstock, click, own_transform as o; print(penstock.__version__, penstock.__file__, o.HERE)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "there")},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == [penstock.__version__, str(tmp_path / "there/penstock/__init__.py"), "True"]


def test_an_archive_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectException, match=r"end with \.tar\.gz"):
        packing.pack(tmp_path / "executors.zip")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "needed", list)
    with pytest.raises(ConnectException, match="cannot be made"):
        packing.pack(tmp_path / "missing" / "executors.tar.gz")
