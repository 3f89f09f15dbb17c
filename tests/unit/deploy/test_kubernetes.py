"""The manifests for Kubernetes and the image say what a worker needs of those who run it."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml
from tests.unit.docs.pages import ROOT

from penstock.config import parse_properties
from penstock.plugins import Plugins
from penstock.settings import DistributedSettings, ProviderSettings, resolve_placeholders
from penstock.validation.settings import worker_warnings

MANIFESTS = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/penstock.yaml").read_text(encoding="utf-8")))
DOCKERFILE = (ROOT / "deploy/docker/Dockerfile").read_text(encoding="utf-8")
#: Beside the deadlines that are settings: connectors, ending Spark, leaving the group, closing.
OTHER_DEADLINES_S = 50


def one(kind: str, name: str = "penstock") -> dict[str, Any]:
    (found,) = [each for each in MANIFESTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    assert isinstance(found, dict)
    return found


def pod() -> dict[str, Any]:
    spec = one("StatefulSet")["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def container() -> dict[str, Any]:
    (found,) = pod()["containers"]
    assert isinstance(found, dict)
    return found


class PodName:
    """What the environment of a pod says."""

    def get(self, path: str, keys: object = None) -> Any:
        from penstock.config import ConfigData

        return ConfigData({"POD_NAME": "penstock-0"})

    def configure(self, settings: object) -> None: ...

    def close(self) -> None: ...


def settings() -> DistributedSettings:
    raw = parse_properties(one("ConfigMap")["data"]["worker.properties"])

    def provider(named: ProviderSettings) -> Any:
        assert (named.name, named.class_text.rpartition(".")[2]) == ("env", "EnvVarConfigProvider")
        return PodName()

    return DistributedSettings.parse(resolve_placeholders(raw, provider))


def test_the_workers_file_is_one_and_everything_in_it_is_read() -> None:
    assert settings().defaulted == ()
    assert worker_warnings(settings().raw, Plugins()) == []
    file = container()["args"][0]
    mount = next(each for each in container()["volumeMounts"] if each["name"] == "settings")
    assert file.removeprefix(mount["mountPath"] + "/") in one("ConfigMap")["data"]
    assert next(each for each in pod()["volumes"] if each["name"] == "settings") == {
        "name": "settings",
        "configMap": {"name": one("ConfigMap")["metadata"]["name"]},
    }


def test_probes_and_services_go_where_the_worker_listens() -> None:
    (listener,) = settings().listeners
    (port,) = container()["ports"]
    assert listener.endswith(f":{port['containerPort']}")
    probes = {kind: container()[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")}
    assert {one["port"] for one in probes.values()} == {port["name"]}
    # A worker that waits for Kafka must not be started again; one that has no place yet must get no requests.
    assert {kind: one["path"] for kind, one in probes.items()} == {
        "startup": "/",
        "readiness": "/health",
        "liveness": "/",
    }
    for name in ("penstock", "penstock-workers"):
        (served,) = one("Service", name)["spec"]["ports"]
        assert (served["port"], served["targetPort"]) == (port["containerPort"], port["name"])


def test_other_workers_find_each_one_by_a_name_that_it_keeps() -> None:
    service = one("Service", "penstock-workers")
    assert one("StatefulSet")["spec"]["serviceName"] == service["metadata"]["name"]
    assert settings().advertised_host == f"penstock-0.{service['metadata']['name']}"
    # The leader of a group that has just come up is asked by workers that are not ready either.
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["clusterIP"] == "None"
    assert {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}} in container()["env"]


def test_everything_is_about_the_same_pods() -> None:
    labels = one("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selectors = [one("Service")["spec"]["selector"], one("Service", "penstock-workers")["spec"]["selector"]]
    selectors += [one(kind)["spec"]["selector"]["matchLabels"] for kind in ("StatefulSet", "PodDisruptionBudget")]

    assert selectors == [labels] * 4


def test_the_time_for_stopping_covers_the_workers_own_deadlines() -> None:
    given = settings()
    deadlines_s = (given.task_shutdown_graceful_timeout_ms + given.offset_flush_timeout_ms) / 1000

    assert pod()["terminationGracePeriodSeconds"] >= deadlines_s + OTHER_DEADLINES_S


def test_a_replaced_pod_has_the_time_to_come_back_before_its_work_goes() -> None:
    startup = container()["startupProbe"]

    assert settings().max_rebalance_delay_ms / 1000 >= startup["periodSeconds"] * startup["failureThreshold"]


def test_the_worker_is_no_root_and_the_same_user_as_in_the_image() -> None:
    (uid,) = re.findall(r"useradd .*--uid (\d+) ", DOCKERFILE)

    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["runAsUser"] == int(uid)
    assert container()["image"] == f"penstock:{project()['version']}"


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
    return found


def test_what_the_image_copies_is_there_and_reaches_the_builder() -> None:
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.M) for name in line.split()]
    let_in = (ROOT / "deploy/docker/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()

    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert {f"!{name}" for name in copied} == {line for line in let_in if line.startswith("!")}
    # What the wheel is made of, by pyproject.toml.
    assert {project()["readme"], *project()["license-files"], "config", "src", "pyproject.toml"} == set(copied)


def test_what_the_image_runs_is_installed() -> None:
    commands = project()["scripts"].keys()
    (entry,) = re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.M)
    before, worker = yaml.safe_load(entry)[:2], yaml.safe_load(entry)[2]

    assert worker in commands
    assert before == ["tini", "--"]
    assert "tini" in re.findall(r"apt-get install .*", DOCKERFILE)[0].split()
    assert re.findall(r"^RUN (\w+) archive-spark$", DOCKERFILE, re.M) == ["penstock"]
    assert "penstock" in commands
    extras = re.findall(r"pip install .*'\.\[(\w+)\]'", DOCKERFILE)
    assert extras
    assert set(extras) <= project()["optional-dependencies"].keys()


@pytest.mark.parametrize("word", ["python:3.12", "openjdk-17"])
def test_the_image_has_the_versions_that_penstock_needs(word: str) -> None:
    assert word in DOCKERFILE
    assert project()["requires-python"] == ">=3.11"
