"""HTTP source: polls a web interface, page by page, and makes a record of each item in its responses.

Main types: `HttpSource`, `HttpSourceTask`. Thread: the connector's and the task's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.api import SourceConnector, SourceRecord, SourceTask
from penstock.connectors.http.client import Client, HttpResponse, expand, shown
from penstock.connectors.http.json_values import at, text_of
from penstock.connectors.http.settings import HttpSourceConfig, Paging
from penstock.errors import BadRequestException, ConnectException, http_error

#: The members of an offset.
_PLACES = ("offset", "last", "page", "cursor", "link")


class HttpSourceTask(SourceTask):
    """Asks for one page in each ``poll``. The offset moves with the last item of a page: a kill repeats a page."""

    config_class = HttpSourceConfig
    settings: HttpSourceConfig

    def start(self, props: Mapping[str, str]) -> None:
        """Finds the committed page."""
        super().start(props)
        self._partition = {"url": shown(self.settings.http_api_url)}
        self._place: dict[str, Any] = dict(self.context.offset_storage_reader().offset(self._partition) or {})
        self._client, self._due, self._round = Client(self.settings), 0.0, _Round()

    def poll(self) -> list[SourceRecord] | None:
        """See ``SourceTask.poll``."""
        wait = self._due - time.monotonic()
        if wait > 0 and (self.context.stopping.wait(min(wait, 1.0)) or wait > 1.0):
            return None
        return self._page()

    def stop(self) -> None:
        """Aborts the request in flight."""
        if hasattr(self, "_client"):
            self._client.close()

    def _page(self) -> list[SourceRecord]:
        config, place = self.settings, self._place
        page, cursor = str(place.get("page", config.page_first)), str(place.get("cursor", ""))
        values = {"offset": str(place.get("offset", config.offset_initial)), "page": page, "cursor": cursor}
        answer = self._client.send("GET", place.get("link") or expand(config.http_api_url, values))
        if not 200 <= answer.status < 300:
            text = f"{shown(answer.url)} answered with status {answer.status}: {answer.text!r}"
            raise http_error(text, answer.status, answer.headers)
        try:
            body = json.loads(answer.body) if answer.body.strip() else []
        except (ValueError, RecursionError) as error:
            raise ConnectException(f"The answer of {shown(answer.url)} is no JSON: {error}: {answer.text!r}") from error
        found = at(body, config.response_pointer, f"the answer of {shown(answer.url)}")
        items = found if isinstance(found, list) else [] if found is None else [found]
        self._place = self._following(answer, body, items)
        if not self._place.keys() & {"link", "page", "cursor"}:
            self._due = time.monotonic() + config.request_interval_ms / 1000
        last = len(items) - 1
        return [self._record(item, self._place if row == last else place) for row, item in enumerate(items)]

    def _record(self, item: Any, offset: Mapping[str, Any]) -> SourceRecord:
        pointer = self.settings.key_pointer
        key = None if pointer is None else at(item, pointer, "an item (key.pointer)")
        return SourceRecord(self._partition, offset, self.settings.topic, item, key=key)

    def _following(self, answer: HttpResponse, body: Any, items: Sequence[Any]) -> dict[str, Any]:
        """The place of the next page; without one, where the next round begins."""
        config, place = self.settings, self._place
        seen = [place[name] for name in ("last", "offset") if name in place][:1]
        if config.offset_pointer is not None:
            seen += [_offset_of(item, config.offset_pointer) for item in items]
        last = max(seen, key=_order) if seen else None
        begun = {name: place[name] for name in ("offset",) if name in place} | ({} if last is None else {"last": last})
        found = None
        if config.page_mode is Paging.NUMBER and items:
            self._round.check(
                hash(answer.body), f"{shown(answer.url)} gives the same answer for two values of ${{page}}"
            )
            return {**begun, "page": int(place.get("page", config.page_first)) + 1}
        if config.page_mode in (Paging.LINK, Paging.CURSOR):
            found = at(body, config.page_pointer, "", missing=None) if config.page_pointer else answer.next_link
        if found not in (None, "", False):
            name = config.page_mode.value
            following = self._client.absolute(answer.url, str(found)) if name == "link" else text_of(found)
            text = f"The answer of {shown(answer.url)} has itself, or a page before it, as the next page ({name})"
            self._round.check(following, text)
            return {**begun, name: following}
        self._round = _Round()
        return {} if last is None else {"offset": last}


class _Round:
    """The pages since the first one, to find a circle with the memory of one page. Source: Brent's algorithm."""

    _kept: object = None
    _count, _until = 0, 1

    def check(self, page: object, text: str) -> None:
        """Compares a page with an earlier one.

        Raises:
            ConnectException: They are the same.
        """
        if page == self._kept:
            raise ConnectException(text)
        self._count += 1
        if self._count == self._until:
            self._kept, self._until = page, 2 * self._until


def _offset_of(item: Any, pointer: str) -> str:
    found = at(item, pointer, "an item (offset.pointer)")
    if found is None or isinstance(found, dict | list):
        raise ConnectException(f"The offset at {pointer} in an item is no number and no text: {found!r:.80}")
    return text_of(found)


def _order(offset: str) -> tuple[int, float, str]:
    """Numbers by their size, text (times, say) as text."""
    try:
        return 0, float(offset), offset
    except ValueError:
        return 1, 0.0, offset


class HttpSource(SourceConnector):
    """Reads a web interface that answers with JSON: a record for each item, page by page."""

    config_class, task_class = HttpSourceConfig, HttpSourceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task: pages come one after the other."""
        return [dict(self.props)]

    def alter_offsets(
        self, props: Mapping[str, str], offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None]
    ) -> bool:
        """Checks new offsets. Removing is always allowed.

        Raises:
            BadRequestException: A partition is not the connector's, or an offset is no place in its pages.
        """
        for partition, offset in offsets.items():
            if offset is None:
                continue
            own = {"url": shown(HttpSourceConfig.parse(props).http_api_url)}
            if dict(partition) != own:
                raise BadRequestException(f"{dict(partition)} is no source partition of this connector: it has {own}")
            for name, value in offset.items():
                if not isinstance(value, int if name == "page" else str) or name not in _PLACES:
                    places = "offset, last, cursor and link, which are texts, and page, a number"
                    raise BadRequestException(f"{dict(offset)} is no offset of this connector: it has some of {places}")
        return True
