"""Recognition of secrets by name, for settings without a definition.

Main functions: `looks_secret`; `names_a_secret`, for names that third parties have chosen. A setting of type PASSWORD
is also a secret. A name such as `password` marks a secret whatever its definition says, because a plugin may read
settings that it has not defined.

Thread: any; pure.
"""

from __future__ import annotations

import re
from typing import Final

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
