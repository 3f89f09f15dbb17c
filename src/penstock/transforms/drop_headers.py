"""DropHeaders: removes headers by name.

Class ``DropHeaders``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.DropHeaders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, Importance, ValidList, setting
from penstock.data import ConnectHeaders
from penstock.pipeline.header_columns import without_headers
from penstock.pipeline.step import Bag, ColumnTransform, Keep, Made, Shape, Step, StepPlan


class DropHeadersConfig(AbstractConfig):
    """The settings of ``DropHeaders``."""

    headers: tuple[str, ...] = setting(
        validator=ValidList.any_non_duplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="The name of the headers to be removed.",
    )


_HEADERS: Final = frozenset({"headers"})


@dataclass(frozen=True)
class Drop(Step):
    """Removes the headers of these names."""

    keys: tuple[str, ...]

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""

        def make(bag: Bag, keep: Keep) -> Made:
            return Made({"headers": without_headers(bag.headers, self.keys)})

        return StepPlan(shape, make, _HEADERS, _HEADERS)


class DropHeaders(ColumnTransform, Transformation):
    """Removes all headers of the configured names; letter case counts."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.DropHeaders"
    _keys: tuple[str, ...] = ()

    def configure(self, props: Mapping[str, object]) -> None:
        """See ``Transformation``."""
        self._keys = DropHeadersConfig.parse(props).headers

    def config(self) -> ConfigDef:
        """See ``Transformation``."""
        return DropHeadersConfig.definition()

    def step(self) -> Step:
        """See ``ColumnTransform``."""
        return Drop(self._keys)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        kept = ConnectHeaders(one for one in record.raw_headers or () if one.key not in self._keys)
        return cast("R", record.new_record(headers=kept))
