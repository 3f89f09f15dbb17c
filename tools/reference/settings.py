"""Writes ``docs/configuration.md`` from the definitions of settings and from the table of client settings.

Main function: ``page``. Run ``python -m tools.reference.settings FILE`` to write it again.

Thread: pure functions, but for the command.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Final

from penstock.config import ConfigDef, ConfigKey
from penstock.kafka.settings.librdkafka import kept_from_connectors, reason_kept_from_connectors
from penstock.kafka.settings.table import SETTINGS, ClientKind, Setting, Treatment
from penstock.plugins.kinds import PluginDescriptor, PluginKind, simple_name
from penstock.plugins.stock import STOCK
from penstock.settings import CONNECTOR, DISTRIBUTED, FRAMES, ISOLATION, SINK, SOURCE, SOURCE_RETRY, STANDALONE, WORKER
from penstock.settings.topics import DEFAULT_GROUP_SETTINGS, group_definition
from tools.reference.tables import cell, default_of, markdown, valid_values

#: Settings that are read and checked and may change nothing, with the fields they are parsed to (None: never a field).
#: One whose field is used nowhere is marked on the page.
FIELDS: Final[dict[str, str | None]] = {
    "key.converter.plugin.version": None,
    "value.converter.plugin.version": None,
    "header.converter.plugin.version": None,
    "connector.plugin.version": None,
    "plugin.discovery": None,
    "metrics.recording.level": None,
    "metric.reporters": None,
    "config.action.reload": "config_action_reload",
    "exactly.once.support": "exactly_once_support",
    "transaction.boundary": "transaction_boundary",
    "transaction.boundary.interval.ms": "transaction_boundary_interval_ms",
    "offsets.storage.topic": "offsets_topic",
}
MARK: Final = "†"

_HEAD: Final = f"""# Settings

This page is made from the code by `python -m tools.reference.settings docs/configuration.md`; a test fails
when it is out of date. Names, types, defaults and meanings are Kafka Connect's, except in the sections that say
otherwise. What differs is in [compatibility.md](compatibility.md).

"Required" stands where there is no default; `null` means: not set. {MARK} marks settings that are read and checked, so
that a configuration of Java Connect is accepted, and then change nothing in this release.

Values may hold placeholders, `${{provider:path:key}}`; see [operations.md](operations.md#secrets).
"""

_DISTRIBUTED: Final = """How to use them is in [distributed.md](distributed.md). Settings of Kafka's clients without a
prefix, such as those for SASL and TLS, are for the worker's own way to Kafka: its group and its topics. Further
settings of the three topics are given below `config.storage.`, `offset.storage.` and `status.storage.`, such as
`offset.storage.min.insync.replicas`; they count when the topic is created.
"""

_CLIENTS: Final = """Settings of Kafka's Java clients, with the prefix `producer.`, `consumer.` or `admin.` in the
worker's file and `producer.override.`, `consumer.override.` or `admin.override.` in a connector's. Consumers and
admin clients are librdkafka's, the producer is the worker's own. Each Java name is used, not needed, or refused:

- *used*: the client works with the value; librdkafka is given it under the names in the last column;
- *not needed*: it changes nothing here; when it is set, a warning says why;
- *refused*: going on without it would do something else than asked, so validation and the task (or worker) fail and say
  what to do.

A name that is no Java setting is passed on to consumers and admin clients as it is when librdkafka has it and
[a connector may give it](#only-in-the-workers-file); other names, and all of them for producers, are left out with a
warning that says which Java setting may be meant. Names and values are looked up in a table: to validate a
configuration no client is made. Java's defaults
count, except for the producer's batch size, which is 1000000 bytes unless it is set. The worker itself sets
`acks=all`, `enable.idempotence=true`,
`max.in.flight.requests.per.connection=5` and `delivery.timeout.ms=2147483647` for producers, `enable.auto.commit=false`
and `auto.offset.reset=earliest` for consumers. (Java Connect's producers are not idempotent and have one request under
way. So have these when `acks`, `retries` or `max.in.flight.requests.per.connection` rule idempotence out.)
"""


def page() -> str:
    """The whole page, Markdown."""
    unused = without_effect()
    own = ConfigDef()
    for name in ("batch.max.records", "batch.max.bytes"):
        own.define_key(WORKER.keys[name])
    standard = [key for key in WORKER.keys.values() if key.name not in own.keys]
    parts = [
        _HEAD,
        "## Worker\n\nFor every worker:\n",
        _table(standard, unused),
        "### Standalone workers\n",
        _table(_of_mode(STANDALONE)),
        "### Distributed workers\n",
        _DISTRIBUTED,
        _table(_of_mode(DISTRIBUTED)),
        "### Penstock's own worker settings\n",
        _table(own.keys.values()),
        "Every setting that begins with `spark.` goes to the Spark session; see\n"
        "[operations.md](operations.md#spark).\n",
        "## Connectors\n\nFor every connector:\n",
        _table(_common(), unused),
        "### Source connectors\n",
        _table([*_beyond(SOURCE), *SOURCE_RETRY.sorted_keys()], unused),
        "Topic creation, active as soon as a setting below `topic.creation.` is there. For the default group,\n"
        "`topic.creation.default.`:\n",
        _table(DEFAULT_GROUP_SETTINGS.keys.values()),
        "For each group named in `topic.creation.groups`, `topic.creation.<group>.` (further settings of a group are\n"
        "settings of the topic, such as `cleanup.policy`); partitions and replication factor default to the default\n"
        "group's:\n",
        _table(_group_keys()),
        "### Sink connectors\n",
        _table([*_beyond(SINK), *FRAMES.sorted_keys()], unused),
        "### Transforms and predicates\n",
        "Below `transforms.<alias>.` and `predicates.<alias>.` the class is named by `type`; `predicate` and `negate`\n"
        "say for which records a transform runs. The other settings are the class's own.\n",
        "## Built-in connectors\n",
        *_plugins(PluginKind.SOURCE),
        *_plugins(PluginKind.SINK),
        "## Converters\n",
        "Below `key.converter.`, `value.converter.` or `header.converter.`, of the worker or of a connector that\n"
        "names the converter itself. The worker sets `converter.type`. Examples: [converters.md](converters.md).\n",
        *_plugins(PluginKind.CONVERTER),
        *_plugins(PluginKind.HEADER_CONVERTER),
        "## Transforms\n",
        "Examples of transforms and predicates are in [transforms.md](transforms.md).\n",
        *_plugins(PluginKind.TRANSFORMATION),
        *(["## Predicates\n", *predicates] if (predicates := _plugins(PluginKind.PREDICATE)) else []),
        "## Config providers\n",
        *[f"- `{one.name}`\n" for one in STOCK if one.kind is PluginKind.CONFIG_PROVIDER],
        "\n## Kafka clients\n",
        _CLIENTS,
        _kept_table(),
        *[_client_table(kind) for kind in ClientKind],
    ]
    return "\n".join(part.rstrip("\n") + "\n" if not part.startswith("- ") else part.rstrip("\n") for part in parts)


def without_effect() -> frozenset[str]:
    """Settings that nothing outside of ``penstock.settings`` looks at."""
    root = Path(__file__).parents[2] / "src" / "penstock"
    files = [path for path in root.rglob("*.py") if path.relative_to(root).parts[0] not in ("settings", "testing")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)

    def is_used(name: str, field: str | None) -> bool:
        by_name = f'"{name}"' in code
        return by_name or (field is not None and re.search(rf"\.{field}\b", code) is not None)

    return frozenset(name for name, field in FIELDS.items() if not is_used(name, field))


def _common() -> list[ConfigKey]:
    shared = [key for key in CONNECTOR.sorted_keys() if key.name in SOURCE.keys and key.name in SINK.keys]
    return [*shared, *ISOLATION.sorted_keys()]


def _of_mode(definition: ConfigDef) -> list[ConfigKey]:
    return [key for key in definition.keys.values() if key.name not in WORKER.keys]


def _beyond(definition: ConfigDef) -> list[ConfigKey]:
    return [key for key in definition.sorted_keys() if key.name not in CONNECTOR.keys]


def _group_keys() -> list[ConfigKey]:
    return list(group_definition(-1, -1).keys.values())


def _plugins(kind: PluginKind) -> list[str]:
    """A section for each class of a kind; the forms for keys and values share one, and converters come once."""
    found: dict[str, list[PluginDescriptor]] = {}
    for one in STOCK:
        if one.kind is kind and (kind is not PluginKind.HEADER_CONVERTER or not _is_converter(one)):
            found.setdefault(simple_name(one.name).partition("$")[0], []).append(one)
    parts: list[str] = []
    for title, forms in found.items():
        parts += [f"### {title}\n", ", ".join(f"`{one.name}`" for one in forms) + "\n"]
        definition = definition_of(forms[0])
        keys = [*definition.keys.values(), *definition.below.values()]
        parts.append(_table(keys) if keys else "It has no settings.\n")
    return parts


def definition_of(plugin: PluginDescriptor) -> ConfigDef:
    """Returns the definition of a plugin's settings."""
    module, _, name = plugin.target.partition(":")
    definition: ConfigDef = getattr(importlib.import_module(module), name)().config()
    return definition


def _is_converter(plugin: PluginDescriptor) -> bool:
    return any(one.kind is PluginKind.CONVERTER and one.target == plugin.target for one in STOCK)


def _table(keys: Iterable[ConfigKey], unused: Set[str] = frozenset()) -> str:
    rows = [
        (
            f"`{key.name}`" + (f" {MARK}" if key.name in unused else ""),
            key.type.value.lower(),
            default_of(key),
            key.importance.value.lower(),
            cell(key.doc) + (f" Valid: {valid_values(key)}." if key.validator is not None else ""),
        )
        for key in keys
    ]
    return markdown(("setting", "type", "default", "importance", "meaning"), rows)


_KEPT: Final = """A connector's configuration may not have these with `producer.override.`, `consumer.override.` or
`admin.override.`, whatever `connector.client.config.override.policy` and the allow list say. Validation refuses them,
of clients that the connector does not use too; where a stored configuration has one, its value is used for nothing, and
the client fails. The same holds for names that begin with `plugin.`, `ssl.engine`, `ssl.provider` or
`enable.sasl.oauthbearer.`, and for callbacks, whose names end with `_cb`, whether or not the client has them.

Who writes the worker's file decides what code runs in the worker, so that file may give them to clients with
`consumer.` and `admin.`; but for callbacks and other objects, which no text can be.
"""


def _kept_table() -> str:
    kept = {**kept_from_connectors(), "ssl.provider": reason_kept_from_connectors("ssl.provider") or ""}
    rows = [(f"`{name}`", cell(reason)) for name, reason in sorted(kept.items()) if not name.endswith("_cb")]
    return f"### Only in the worker's file\n\n{_KEPT}\n" + markdown(("setting", "why"), rows)


def _client_table(kind: ClientKind) -> str:
    rows = [_client_row(kind, row) for row in sorted(SETTINGS, key=lambda row: row.name) if kind in row.clients]
    last = "why" if kind is ClientKind.PRODUCER else "librdkafka's name, or why"
    return f"### {kind.value.title()}\n\n" + markdown(("Java setting", "here", last), rows)


def _client_row(kind: ClientKind, row: Setting) -> tuple[str, ...]:
    if row.treatment is not Treatment.USED:
        return f"`{row.name}`", row.treatment.value, cell(row.reason)
    if row.family is not None:
        return f"`{row.name}`", "used", f"together with the other {row.family.value} settings"
    names = () if kind is ClientKind.PRODUCER else row.targets
    return f"`{row.name}`", "used", ", ".join(f"`{target}`" for target in names)


def main(arguments: Sequence[str]) -> int:
    """Writes the page to a file, or to standard output."""
    if not arguments:
        sys.stdout.write(page())
    else:
        Path(arguments[0]).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
