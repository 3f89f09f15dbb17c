"""A source of a web interface: the items of a list behind an id, page by page, from an offset that says the last id."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx

from penstock.api import BackfillPart, BackfillSpan, Chunk, PartitionedSource
from penstock.config import AbstractConfig, Password, Range, setting
from penstock.errors import RetriableException, http_error


class ItemsConfig(AbstractConfig):
    url: str = setting(doc="Where the items are. It takes the parameter after, and answers with an array of objects.")
    topic: str = setting(doc="Where they go.")
    id_field: str = setting(default="id", doc="The field of an item that grows; the key of its record.")
    token: Password = setting(default=Password(""), doc="Sent as a bearer token.")
    poll_ms: int = setting(default=1000, validator=Range.at_least(1), doc="How often new items are asked for.")


class ItemsSource(PartitionedSource):
    config_class = ItemsConfig

    @property
    def idle_s(self) -> float:  # type: ignore[override]
        return float(self.settings.poll_ms) / 1000

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        config = self.settings
        headers = {"authorization": f"Bearer {config.token.value}"} if config.token.value else {}
        after = offset["after"] if offset else 0
        with httpx.Client(headers=headers, timeout=10) as client:
            while items := self.page(client, after):
                # Behind each item lies an offset, so that a kill in the middle of a page repeats nothing.
                yield Chunk(items, config.topic, offset_columns={"after": config.id_field}, key=[config.id_field])
                after = items[-1][config.id_field]

    def plan_backfill(self, partitions: Sequence[Mapping[str, Any]], span: BackfillSpan) -> list[BackfillPart]:
        first, end = span.numbers("give the first id, and the one behind the last")
        return [BackfillPart(one, {"from": first, "to": end}) for one in partitions]

    def backfill(self, part: BackfillPart, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        first, end = part.reads["from"], part.reads["to"]
        for chunk in self.read(part.partition, offset or {"after": first - 1}):
            page: Any = chunk.data
            items = [one for one in page if one[self.settings.id_field] < end]
            if not items:
                return
            yield replace(chunk, data=items)

    def page(self, client: httpx.Client, after: object) -> list[dict[str, Any]]:
        try:
            answer = client.get(self.settings.url, params={"after": str(after)})
        except httpx.HTTPError as error:
            raise RetriableException(f"{self.settings.url} cannot be reached: {error}") from error
        if answer.status_code != 200:
            text = f"{self.settings.url} answers {answer.status_code}: {answer.text[:200]}"
            raise http_error(text, answer.status_code, answer.headers)
        return list(answer.json())
