"""Tests of every connector: its settings, and that it can be started and stopped in any order.

Main type: ``ConnectorSuite``, the base of ``SourceSuite`` and ``SinkSuite``.

Owning thread: the test's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from penstock.api import Connector, SourceConnector
from penstock.config import Config, ConfigKey, ConfigType
from penstock.stores.offsets import MemoryOffsetStore
from penstock.testing.kit.contexts import KitSinkConnectorContext, KitSinkContext, KitSourceConnectorContext, Reports
from penstock.testing.kit.contexts import KitSourceContext as SourceContext
from penstock.testing.kit.lives import checked_configs, collect, props_of

#: Texts that no parser of numbers takes.
_NUMBERS: Final = (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE, ConfigType.BOOLEAN)
#: Mistakes of users: validation names the error, and does not fail.
_ODD_TEXTS: Final = (
    "",
    " ",
    "?",
    "-1",
    "0",
    "1e400",
    "\N{SNOWMAN}",
    "a\0b",
    "[",
    "${x",
    "{",
    "no.such.Class",
    ",,",
    "../..",
)


class ConnectorSuite:
    """The duties of every connector, whatever it reads or writes; see ``SourceSuite`` and ``SinkSuite``.

    Attributes:
        connector: The class.
        wrong: Settings and values that validation has to refuse. Each one is tried by itself, and its name has to be
            among the errors. That required settings are missing, and that numbers are none, is tried without it.
        stop_s: How long a stop may take, in seconds, however the task is blocked. The best of three tries counts: on a
            busy machine one may be late that waits for the processor only.
        timeout_s: How long a run waits for records, in seconds, before it says that they were lost.
        most_kills: Kills of one test, at most: of more steps some are left out, evenly. Fewer where a run takes long.

    Source: Penstock's own.
    """

    connector: ClassVar[type[Connector]]
    wrong: ClassVar[Mapping[str, str]] = {}
    stop_s: ClassVar[float] = 1.0
    most_kills: ClassVar[int] = 60
    timeout_s: ClassVar[float] = 10.0

    def prepare(self, path: Path) -> dict[str, str]:
        """Makes the system that is read or written, as new, and gives the connector's settings.

        Called for each run.

        Args:
            path: An empty directory of this run.
        """
        raise NotImplementedError(f"{type(self).__name__} needs prepare(self, path), which gives the settings")

    def release(self) -> None:
        """Does what the end of a killed process would do, and the garbage collector does not. Called after a kill."""

    # ------------------------------------------------------------------------------------------------------ settings
    def test_settings_that_are_right_are_accepted(self, tmp_path: Path) -> None:
        """Validation finds nothing."""
        assert self._errors(self.prepare(self._path(tmp_path))) == {}

    def test_a_setting_that_is_missing_is_named(self, tmp_path: Path) -> None:
        """Each required setting."""
        settings = self.prepare(self._path(tmp_path))
        for key in self._keys():
            if not key.has_default and key.name in settings:
                found = self._errors({name: value for name, value in settings.items() if name != key.name})
                assert found.get(key.name), f"Without {key.name} the errors are {found}: none is about {key.name}"

    def test_a_number_that_is_none_is_named(self, tmp_path: Path) -> None:
        """Each setting that is a number or a boolean."""
        settings = self.prepare(self._path(tmp_path))
        for key in self._keys():
            if key.type in _NUMBERS:
                found = self._errors({**settings, key.name: "x?"})
                assert found.get(key.name), f"With {key.name}=x? the errors are {found}: none is about {key.name}"

    def test_wrong_settings_are_named(self, tmp_path: Path) -> None:
        """The settings of ``wrong``."""
        settings = self.prepare(self._path(tmp_path))
        for name, value in self.wrong.items():
            found = self._errors({**settings, name: value})
            assert found.get(name), f"With {name}={value} the errors are {found}: none is about {name}"

    def test_validation_says_what_is_wrong_and_does_not_fail(self, tmp_path: Path) -> None:
        """Odd texts in each setting, and no settings."""
        settings = self.prepare(self._path(tmp_path))
        odd = [(f"{key.name}={text!r}", {**settings, key.name: text}) for key in self._keys() for text in _ODD_TEXTS]
        for what, given in [("no settings", {}), *odd]:
            try:
                self._errors(given)
            except Exception as error:
                raise AssertionError(
                    f"validate() raised {type(error).__name__} with {what}, a 500 of the REST API: {error}"
                ) from error

    def test_explain_is_answered_whatever_the_settings_are(self, tmp_path: Path) -> None:
        """``obstacles`` and what a worker asks of settings that are right."""
        props = props_of(self.connector, self.prepare(self._path(tmp_path)), 2)
        made: Any = self.connector()
        assert all(isinstance(one, str) for one in made.obstacles(props))
        if isinstance(made, SourceConnector):
            made.exactly_once_support(props)
            made.can_define_transaction_boundaries(props)

    # --------------------------------------------------------------------------------------------------- connector
    def test_tasks_are_divided_in_the_same_way_each_time(self, tmp_path: Path) -> None:
        """At most as many as there may be, and the same when it is asked again."""
        made = self._started(tmp_path)
        try:
            for tasks_max in (1, 2, 5, 1):
                first = checked_configs(made, tasks_max)
                assert first == checked_configs(made, tasks_max), "another answer restarts the tasks"
                strange = [one for config in first for pair in config.items() for one in pair if type(one) is not str]
                assert not strange, f"task configurations are texts: {strange}"
        finally:
            made.stop()

    def test_a_connector_is_paused_and_resumed(self, tmp_path: Path) -> None:
        """The same instance is stopped and started again, and divides the work as before."""
        made = self._started(tmp_path)
        before = checked_configs(made, 2)
        made.stop()
        made.start(props_of(self.connector, self._settings, 2))
        try:
            assert sorted(map(repr, checked_configs(made, 2))) == sorted(map(repr, before))
        finally:
            made.stop()

    def test_a_task_that_never_started_can_be_stopped(self, tmp_path: Path) -> None:
        """A worker calls ``stop`` also when ``start`` has failed: nothing may be taken to exist."""
        made = self._started(tmp_path)
        try:
            task = made.task_class()()
            task.initialize(self._task_context(made))
            task.stop()
        finally:
            made.stop()

    def test_a_task_whose_start_failed_can_be_stopped(self, tmp_path: Path) -> None:
        """A start without settings, which is half of one."""
        made = self._started(tmp_path)
        try:
            task = made.task_class()()
            task.initialize(self._task_context(made))
            try:
                task.start({})
            except Exception:
                # It fails in a way of its own.
                pass
            task.stop()
        finally:
            made.stop()
            del task
            collect()

    # ------------------------------------------------------------------------------------------------------ helpers
    _settings: dict[str, str]

    def _path(self, tmp_path: Path) -> Path:
        """An empty directory for a run, the same path for each, since source partitions may have it."""
        path = tmp_path / "run"
        if path.exists():
            shutil.rmtree(path)
        path.mkdir()
        return path

    def _errors(self, settings: Mapping[str, str]) -> dict[str, list[str]]:
        found = self.connector().validate({"name": "kit", **settings})
        assert isinstance(found, Config), f"validate() gave a {type(found).__name__}"
        return {one.name: list(one.error_messages) for one in found.config_values if one.error_messages}

    def _keys(self) -> list[ConfigKey]:
        return list(self.connector().config().keys.values())

    def _started(self, tmp_path: Path) -> Any:
        self._settings = self.prepare(self._path(tmp_path))
        made: Any = self.connector()
        is_source = isinstance(made, SourceConnector)
        made.initialize(KitSourceConnectorContext("kit", _store()) if is_source else KitSinkConnectorContext())
        made.start(props_of(self.connector, self._settings, 2))
        return made

    def _task_context(self, made: Connector) -> Any:
        if isinstance(made, SourceConnector):
            return SourceContext("kit", {}, _store(), None)
        return KitSinkContext("kit task 0", {}, frozenset, Reports(tolerant=True))


def quickest(measure: Callable[[], float], limit_s: float) -> float:
    """The best of up to three measures.

    Args:
        measure: Gives seconds.
        limit_s: A measure below it is good enough, and the last one.
    """
    best = measure()
    for _ in range(2):
        if best >= limit_s:
            best = min(best, measure())
    return best


def _store() -> MemoryOffsetStore:
    store = MemoryOffsetStore()
    store.start()
    return store
