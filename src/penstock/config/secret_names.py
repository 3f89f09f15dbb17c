"""Names that secrets have, for settings that no definition says anything of.

Main functions: `looks_secret`; `names_a_secret`, for names that others have chosen. A definition of type PASSWORD makes
a secret as well; a name such as `password` does so whatever its definition says, because a plugin may read what it has
not defined.

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
#: A name that ends so is about a secret, and is none: where it is, of which kind, how long it counts.
_ABOUT: Final = re.compile(
    r"\.(?:algorithm|class|client\.id|count|directory|enabled?|endpoint|expiry|field|file(?:name)?|format|length|location|max|min|"
    r"ms|name|path|policy|provider|required?|seconds|sec|size|source|strategy|topic|ttl|type|uri|urls?|username|version)$"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS: Final = re.compile(r"[\W_]+")
#: Who wants more says it in a definition; a name costs time for each of its letters.
_LONGEST: Final = 1000


def looks_secret(name: str) -> bool:
    """True if a setting of this name holds a secret, as far as a name tells.

    >>> [name for name in ("db.password", "apiKey", "AWS_SECRET_ACCESS_KEY", "bearer.token") if not looks_secret(name)]
    []
    >>> [name for name in ("key.converter", "token.endpoint.url", "credentials.source", "topic") if looks_secret(name)]
    []
    """
    words = _SEPARATORS.sub(".", _CAMEL.sub(".", name[-_LONGEST:])).strip(".").lower()
    return _SECRET.search(words) is not None and _ABOUT.search(words) is None


#: Of the options of formats and drivers, which are named by anybody.
_PARTS: Final = ("password", "passwd", "secret", "token", "key", "credential")


def names_a_secret(option: str) -> bool:
    """True if an option of another system may hold a secret: rather one too many is hidden than one shown.

    >>> [name for name in ("fs.s3a.secret.key", "sfPassword", "accessToken", "header") if names_a_secret(name)]
    ['fs.s3a.secret.key', 'sfPassword', 'accessToken']
    """
    return any(part in option.lower() for part in _PARTS) or looks_secret(option)
