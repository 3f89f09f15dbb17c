"""The content of a key store, and the format of its file.

Main types: ``KeyStore``, ``KeyEntry``, ``KeyStoreFault``; main function: ``open_store``. Values; any thread.
"""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Blame(Enum):
    """The part of the settings that is at fault if a store cannot be read."""

    FILE = "file"
    STORE_PASSWORD = "store password"
    KEY_PASSWORD = "key password"


class KeyStoreFault(Exception):
    """A store that cannot be read.

    Attributes:
        blame: The setting or file to correct.
    """

    def __init__(self, blame: Blame, message: str) -> None:
        super().__init__(message)
        self.blame = blame


@dataclass(frozen=True)
class KeyEntry:
    """A private key with its certificates.

    Attributes:
        alias: Its name in the store.
        chain: Certificates in DER, the key's own first.
        recover: Gives the key, PKCS8 in DER without encryption; its argument is the key's password. Raises
            ``KeyStoreFault``.
    """

    alias: str
    chain: Sequence[bytes]
    recover: Callable[[str], bytes] = field(repr=False)


@dataclass(frozen=True)
class KeyStore:
    """The content of a store.

    Attributes:
        format: ``JKS`` or ``PKCS12``.
        keys: In the order of the file.
        trusted: The certificates that the file marks as trusted, in DER.
    """

    format: str
    keys: Sequence[KeyEntry]
    trusted: Sequence[bytes]

    def anchors(self) -> list[bytes]:
        """Returns the certificates that Java trusts if this is its trust store: the trusted ones, and those of the
        keys.
        """
        return [*self.trusted, *(entry.chain[0] for entry in self.keys if entry.chain)]


_JAVA_MAGIC = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_DER_SEQUENCE = 0x30


def format_of(data: bytes) -> str | None:
    """The format of a file; None for one that is no key store.

    The file counts, not the setting: since Java 9 ``keytool`` writes PKCS12 into files that are called JKS.

    >>> format_of(bytes.fromhex("feedfeed00000002")), format_of(b"0" + bytes([3, 2, 1, 3])), format_of(b"-----BEGIN")
    ('JKS', 'PKCS12', None)
    """
    if data[:1] == bytes([_DER_SEQUENCE]):
        return "PKCS12"
    return _JAVA_MAGIC.get(data[:4])


def open_store(data: bytes, password: str | None) -> KeyStore:
    """Reads a store.

    Args:
        data: The whole file.
        password: The store's; without one a JKS file is read unchecked, as Java does.

    Raises:
        KeyStoreFault: it is in no known format, damaged, or the password is wrong.
    """
    match format_of(data):
        case "PKCS12":
            from penstock.keystores.pkcs12 import decode_pkcs12

            return decode_pkcs12(data, password)
        case "JKS":
            from penstock.keystores.jks import decode_jks

            return decode_jks(data, password)
        case "JCEKS":
            raise KeyStoreFault(
                Blame.FILE,
                "The file is a JCEKS key store, which only Java reads; convert it with keytool -importkeystore "
                "-srckeystore FILE -srcstoretype jceks -destkeystore NEW_FILE -deststoretype pkcs12",
            )
        case _:
            raise KeyStoreFault(Blame.FILE, "The file is neither PKCS12 nor JKS nor PEM")


def pem(label: str, data: bytes) -> str:
    """DER as PEM.

    >>> print(pem("CERTIFICATE", b"abc"), end="")
    -----BEGIN CERTIFICATE-----
    YWJj
    -----END CERTIFICATE-----
    """
    lines = "\n".join(textwrap.wrap(base64.b64encode(data).decode("ascii"), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
