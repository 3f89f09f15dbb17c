"""A sink that reports the records it cannot take: appends numbers to a file, one a line."""

from collections.abc import Mapping, Sequence

from penstock.api import OffsetAndMetadata, SinkConnector, SinkRecord, SinkTask, TopicPartition
from penstock.config import AbstractConfig, ConfigDef, NonEmptyString, setting
from penstock.data import Values
from penstock.errors import DataException


class NumbersConfig(AbstractConfig):
    file: str = setting(validator=NonEmptyString(), doc="Where the numbers go.")


class NumbersTask(SinkTask):
    def start(self, props: Mapping[str, str]) -> None:
        self.file = open(NumbersConfig.parse(props).file, "a", encoding="utf-8")  # noqa: SIM115 - closed by stop

    def put(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            try:
                number = Values.convert_to_double(record.value_schema, record.value)
            except DataException as error:
                self.reject(record, error)
            else:
                self.file.write(f"{number}\n")

    def reject(self, record: SinkRecord, error: DataException) -> None:
        reporter = self.context.errant_record_reporter()
        if reporter is None:  # Neither a dead letter queue nor errors.log.enable is configured.
            raise error
        reporter.report(record, error)  # With errors.tolerance=none it raises, and the task fails: let it.

    def flush(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.file.flush()

    def stop(self) -> None:
        file = getattr(self, "file", None)  # `start` may have failed before.
        if file is not None:
            file.close()


class NumbersSink(SinkConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)

    def task_class(self) -> type[NumbersTask]:
        return NumbersTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self.props] * max_tasks

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return NumbersConfig.definition()
