"""Suggestions for misspelt names, within limits of time, and the recognition of secrets by name.

Names come from requests, and comparing two names takes time proportional to the product of their lengths, so long names
and surplus candidates are left out. A name such as `password` marks a secret whatever its definition says, because a
plugin may read settings that it has not defined.

Pure functions; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

#: A longer name is not a misspelling.
LONGEST: Final = 200
MOST_CANDIDATES: Final = 500


def candidates(name: str, known: Iterable[str]) -> list[str]:
    """Selects the known names to compare a name with: at most `MOST_CANDIDATES`, none longer than `LONGEST`.

    >>> candidates("a" * 201, ["a"]), candidates("a", ["b", "b" * 201])
    ([], ['b'])
    """
    if len(name) > LONGEST:
        return []
    return list(islice((one for one in known if len(one) <= LONGEST), MOST_CANDIDATES))


def nearest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """The known name that is most similar, at least by the cutoff: 1 for equal, 0 for nothing in common.

    >>> nearest("compresion.type", ["compression.type", "acks"], 0.8)
    'compression.type'
    >>> nearest("x" * 10_000, ["x" * 10_000], 0.8)
    """
    return next(iter(get_close_matches(name, candidates(name, known), n=1, cutoff=cutoff)), None)


#: Words of a name, in lower case and joined by dots: `db.apiKey` is `db.api.key`.
_SECRET: Final = re.compile(
    r"(?:^|\.)(?:"
    r"\w*passwords?|\w*passwd|\w*passphrase|pwd|pw|pass|\w*secrets?|\w*credentials?|jaas|token|apikeys?|"
    r"(?:api|access|account|encryption|master|private|secret|shared|signing)\.keys?|user\.?info|authorization|"
    r"key\.pem|keystore\.key"
    r")(?=\.|$)"
)
#: Endings of names that describe a secret without being one: its location, kind or lifetime.
_ABOUT: Final = re.compile(
    r"\.(?:algorithm|class|client\.id|count|directory|enabled?|endpoint|expiry|field|file(?:name)?|format|length|location|max|min|"
    r"ms|name|path|policy|provider|required?|seconds|sec|size|source|strategy|topic|ttl|type|uri|urls?|username|version)$"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS: Final = re.compile(r"[\W_]+")
#: A longer secret name needs a definition; matching takes time for each letter of a name.
_LONGEST: Final = 1000


def looks_secret(name: str) -> bool:
    """True if the name suggests that the setting holds a secret.

    >>> [name for name in ("db.password", "apiKey", "AWS_SECRET_ACCESS_KEY", "bearer.token") if not looks_secret(name)]
    []
    >>> [name for name in ("key.converter", "token.endpoint.url", "credentials.source", "topic") if looks_secret(name)]
    []
    """
    words = _SEPARATORS.sub(".", _CAMEL.sub(".", name[-_LONGEST:])).strip(".").lower()
    return _SECRET.search(words) is not None and _ABOUT.search(words) is None


#: For options of formats and drivers, whose names third parties choose.
_PARTS: Final = ("password", "passwd", "secret", "token", "key", "credential")


def names_a_secret(option: str) -> bool:
    """True if an option of another system may hold a secret; in doubt it is hidden.

    >>> [name for name in ("fs.s3a.secret.key", "sfPassword", "accessToken", "header") if names_a_secret(name)]
    ['fs.s3a.secret.key', 'sfPassword', 'accessToken']
    """
    return any(part in option.lower() for part in _PARTS) or looks_secret(option)
