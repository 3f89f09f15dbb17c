"""The format JKS: files that Java's own provider wrote before PKCS12 became its default.

Main function: ``decode_jks``. Pure.

JCEKS, its sister, is refused with the command that converts it: it was made for secret keys, which TLS has no use for,
and protects private keys with Triple DES, which the library for it is about to drop.

Source: sun.security.provider.{JavaKeyStore, KeyProtector}.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import partial
from typing import Final

from penstock.keystores.store import Blame, KeyEntry, KeyStore, KeyStoreFault

_PRIVATE_KEY, _TRUSTED = 1, 2
_DIGEST_SIZE: Final = 20
_DIGEST_WORDS: Final = b"Mighty Aphrodite"
# An object identifier, encoded: 1.3.6.1.4.1.42.2.17.1.1.
_SUN_PROTECTION: Final = bytes.fromhex("2b060104012a02110101")


def decode_jks(data: bytes, password: str | None) -> KeyStore:
    """Reads a JKS file.

    Args:
        data: The whole file.
        password: The store's; None to leave out the check of its digest.

    Raises:
        KeyStoreFault: damaged, the password is wrong, or it has entries that cannot be read.
    """
    reader = _Reader(data)
    reader.number(4)
    version, count = reader.number(4), reader.number(4)
    if version not in (1, 2):
        raise KeyStoreFault(Blame.FILE, f"The JKS file is damaged: version {version} does not exist")
    keys: list[KeyEntry] = []
    trusted: list[bytes] = []
    for _ in range(count):
        tag, alias, _date = reader.number(4), reader.text(), reader.number(8)
        if tag == _TRUSTED:
            trusted.append(reader.certificate(version))
        elif tag == _PRIVATE_KEY:
            protected = reader.block()
            chain = [reader.certificate(version) for _ in range(reader.number(4))]
            keys.append(KeyEntry(alias, chain, partial(_recover, alias, protected)))
        else:
            raise KeyStoreFault(Blame.FILE, f"The JKS file is damaged: entries of kind {tag} do not exist")
    if len(data) - reader.position != _DIGEST_SIZE:
        raise KeyStoreFault(Blame.FILE, "The JKS file is damaged: it does not end after its last entry")
    if password is not None:
        digest = hashlib.sha1(_wide(password) + _DIGEST_WORDS + data[:-_DIGEST_SIZE], usedforsecurity=False).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST_SIZE:]):
            raise KeyStoreFault(Blame.STORE_PASSWORD, "The password of the JKS file is wrong, or it is damaged")
    return KeyStore("JKS", keys, trusted)


class _Reader:
    """Goes through a file from its beginning.

    Raises:
        KeyStoreFault: from every method, when the file ends too early.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def text(self) -> str:
        # Java's modified UTF-8: surrogates one by one. It is only shown, so a replaced character does no harm.
        return self._take(self.number(2)).decode("utf-8", "replace")

    def block(self) -> bytes:
        return self._take(self.number(4))

    def certificate(self, version: int) -> bytes:
        if version > 1:
            self.text()
        return self.block()

    def _take(self, size: int) -> bytes:
        taken = self._data[self.position : self.position + size]
        if len(taken) < size:
            raise KeyStoreFault(Blame.FILE, f"The key store is damaged: it ends at byte {len(self._data)}, too early")
        self.position += size
        return taken


def _recover(alias: str, protected: bytes, password: str) -> bytes:
    """Takes the protection off a private key."""
    try:
        algorithm, data = _protected_parts(protected)
        if _der(algorithm)[0] != _SUN_PROTECTION:
            raise KeyStoreFault(Blame.FILE, f"The private key {alias} is protected in a way that is not known")
        key = _off_sun(data, _wide(password))
    except (IndexError, ValueError) as error:
        raise KeyStoreFault(Blame.FILE, f"The private key {alias} is damaged") from error
    if key is None:
        raise KeyStoreFault(
            Blame.KEY_PASSWORD,
            f"The password does not open the private key {alias}. A key has the password of its store "
            "(ssl.keystore.password) unless it was given one of its own (ssl.key.password)",
        )
    return key


def _off_sun(data: bytes, password: bytes) -> bytes | None:
    """The key was mixed with a stream of SHA-1 digests, each of the password and the digest before it."""
    salt, mixed, check = data[:_DIGEST_SIZE], data[_DIGEST_SIZE:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    stream = bytearray()
    block = salt
    while len(stream) < len(mixed):
        block = hashlib.sha1(password + block, usedforsecurity=False).digest()
        stream += block
    key = bytes(one ^ other for one, other in zip(mixed, stream, strict=False))
    right = hmac.compare_digest(hashlib.sha1(password + key, usedforsecurity=False).digest(), check)
    return key if right else None


def _wide(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _protected_parts(protected: bytes) -> tuple[bytes, bytes]:
    """Algorithm and data of an EncryptedPrivateKeyInfo."""
    algorithm, rest = _der(_der(protected)[0])
    return algorithm, _der(rest)[0]


def _der(data: bytes) -> tuple[bytes, bytes]:
    """The content of the first element, and the bytes after it.

    >>> _der(bytes([4, 2, 7, 8, 5, 0]))
    (b'\\x07\\x08', b'\\x05\\x00')

    Raises:
        IndexError, ValueError: it does not fit in.
    """
    size, start = data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if start + size > len(data):
        raise ValueError("longer than what holds it")
    return data[start : start + size], data[start + size :]
