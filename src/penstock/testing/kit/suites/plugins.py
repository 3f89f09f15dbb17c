"""Tests of what every transform, predicate and converter has to do with its settings.

``without`` leaves out tests that need something of the author's.

Main type: ``PluginSuite``, the base of ``TransformSuite`` and ``ConverterSuite``.

Owning thread: the test's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from penstock.config import ConfigType
from penstock.errors import ConnectException, KafkaException


def without(cls: Any, suite: type, hook: str, *tests: str) -> None:
    """Leaves tests out of a subclass of a suite that does not override what they need, so that none is skipped.

    Args:
        cls: The subclass.
        suite: Where the hook is defined.
        hook: The method that has to be overridden.
        tests: The names of the tests.
    """
    for test in tests:
        if getattr(cls, hook) is vars(suite)[hook]:
            setattr(cls, test, None)
        elif getattr(cls, test) is None:
            setattr(cls, test, vars(suite)[test])


_NUMBERS: Final = (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE, ConfigType.BOOLEAN)
_ODD_TEXTS: Final = ("", " ", "?", "-1", "0", "\N{SNOWMAN}", "a\0b", "[", "${x", "no.such.Class", ",,", ":", "a:b:c")


class PluginSuite:
    """The settings of a class that is configured; see ``TransformSuite`` and ``ConverterSuite``.

    Attributes:
        settings: Settings that are right.
        wrong: Settings and values that are refused, each one by itself.
        told: The expected classes of errors: those of ``penstock.errors``.

    Source: Penstock's own.
    """

    settings: ClassVar[Mapping[str, str]] = {}
    wrong: ClassVar[Mapping[str, str]] = {}
    told: ClassVar[tuple[type[Exception], ...]] = (ConnectException, KafkaException)

    def make(self, settings: Mapping[str, str] | None = None) -> Any:
        """An instance that is configured with some settings, ``settings`` for None."""
        raise NotImplementedError

    def kept(self, made: Any) -> Any:
        """An instance that is closed when the test has ended."""
        if not hasattr(self, "_made"):
            self._made: list[Any] = []
        self._made.append(made)
        return made

    def teardown_method(self) -> None:
        """Closes what the test has made; pytest calls it."""
        for one in getattr(self, "_made", ()):
            one.close()

    def test_settings_that_are_right_are_accepted(self) -> None:
        """Neither validation nor ``configure`` finds anything."""
        made = self.make()
        assert self._errors(made, self.settings) == {}
        made.close()

    def test_a_setting_that_is_missing_is_named(self) -> None:
        """Each required setting, by validation and by ``configure``."""
        made = self.make()
        for key in made.config().keys.values():
            if not key.has_default and key.name in self.settings:
                rest = {name: value for name, value in self.settings.items() if name != key.name}
                found = self._errors(made, rest)
                assert found.get(key.name), f"Without {key.name} the errors are {found}: none is about {key.name}"
                error = self._refusal(rest)
                assert error is not None, f"configure() takes settings without {key.name}"
                assert key.name in str(error), f"configure() without {key.name} does not name it: {error}"

    def test_a_number_that_is_none_is_named(self) -> None:
        """Each setting that is a number or a boolean."""
        made = self.make()
        for key in made.config().keys.values():
            if key.type in _NUMBERS:
                found = self._errors(made, {**self.settings, key.name: "x?"})
                assert found.get(key.name), f"With {key.name}=x? the errors are {found}: none is about {key.name}"

    def test_wrong_settings_are_refused(self) -> None:
        """The settings of ``wrong``, by validation or by ``configure``."""
        for name, value in self.wrong.items():
            given = {**self.settings, name: value}
            error = self._refusal(given)
            assert error is not None or self._errors(self.make(), given), f"{name}={value} is taken"

    def test_odd_settings_are_taken_or_refused_with_an_error_that_says_why(self) -> None:
        """Odd texts in each setting."""
        made = self.make()
        for key in made.config().keys.values():
            for text in _ODD_TEXTS:
                given = {**self.settings, key.name: text}
                self._errors(made, given)
                error = self._refusal(given)
                assert error is None or isinstance(error, self.told), (
                    f"configure() raised {type(error).__name__} with {key.name}={text!r}: {error}"
                )

    def test_it_can_be_closed_at_any_time(self) -> None:
        """Twice, and before it is configured."""
        made = self.make()
        made.close()
        made.close()
        type(made)().close()

    def _errors(self, made: Any, settings: Mapping[str, str]) -> dict[str, list[str]]:
        found = made.config().validate(settings)
        return {one.name: list(one.error_messages) for one in found if one.error_messages}

    def _refusal(self, settings: Mapping[str, str]) -> Exception | None:
        try:
            self.make(settings).close()
        except Exception as error:
            return error
        return None
