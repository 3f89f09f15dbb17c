"""Java's key and trust stores, and the settings ``ssl.*``, as PEM text and in an ``ssl.SSLContext``.

For servers (the REST API) and clients (Kafka's) alike; nothing is written or kept. JCEKS is refused with the command
that converts it: it was made for secret keys, which TLS does not use, and protects private keys with Triple DES, which
the library for it is about to drop.

Thread: any.
Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory; sun.security.provider.{JavaKeyStore,
KeyProtector}; sun.security.pkcs12.PKCS12KeyStore for the trusted certificates.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import ssl
import stat
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12

from penstock.errors import ConfigException


class Blame(Enum):
    """The part of the settings that is at fault if a store cannot be read."""

    FILE = "file"
    STORE_PASSWORD = "store password"
    KEY_PASSWORD = "key password"


class KeyStoreFault(Exception):
    """A store that cannot be read."""

    def __init__(self, blame: Blame, message: str) -> None:
        super().__init__(message)
        self.blame = blame


@dataclass(frozen=True)
class KeyEntry:
    """A private key with its certificates.

    Attributes:
        chain: Certificates in DER, the key's own first.
        recover: Returns the key, PKCS8 in DER without encryption; its argument is the key's password. Raises
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
    """The format of a file; None if it is not a key store.

    The content counts, not the setting: since Java 9 ``keytool`` writes PKCS12 into files with names like ``.jks``.

    >>> format_of(bytes.fromhex("feedfeed00000002")), format_of(b"0" + bytes([3, 2, 1, 3])), format_of(b"-----BEGIN")
    ('JKS', 'PKCS12', None)
    """
    if data[:1] == bytes([_DER_SEQUENCE]):
        return "PKCS12"
    return _JAVA_MAGIC.get(data[:4])


def open_store(data: bytes, password: str | None) -> KeyStore:
    """Reads a store.

    Args:
        password: The store's password; without it a JKS file is read unchecked, as in Java.
    """
    match format_of(data):
        case "PKCS12":
            return decode_pkcs12(data, password)
        case "JKS":
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


_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def enabled_versions(text: str) -> tuple[str, ...]:
    """The versions that ``ssl.enabled.protocols`` names; empty for all."""
    named = tuple(name.strip() for name in text.split(",") if name.strip())
    if any(name not in _VERSIONS for name in named):
        raise ConfigException("ssl.enabled.protocols", text, f"Only {' and '.join(_VERSIONS)} are supported")
    return named


def set_versions(context: ssl.SSLContext, named: Sequence[str]) -> None:
    """Allows only these versions of TLS; all versions if none is named."""
    versions = [_VERSIONS[name] for name in named] or list(_VERSIONS.values())
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def openssl_cipher(java_name: str) -> str | None:
    """OpenSSL's name of a TLS 1.2 cipher suite; None for suites of TLS 1.3, which have a list of their own.

    >>> openssl_cipher("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"), openssl_cipher("TLS_AES_128_GCM_SHA256")
    ('ECDHE-RSA-AES256-GCM-SHA384', None)
    >>> openssl_cipher("TLS_RSA_WITH_AES_128_CBC_SHA"), openssl_cipher("ECDHE-RSA-AES256-GCM-SHA384")
    ('AES128-SHA', 'ECDHE-RSA-AES256-GCM-SHA384')
    """
    if not java_name.startswith(("TLS_", "SSL_")):
        return java_name
    exchange, found, cipher = java_name[4:].partition("_WITH_")
    if not found:
        return None
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return "-".join([*([] if exchange == "RSA" else exchange.split("_")), *cipher.split("_")])


def set_ciphers(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Sets the suites of TLS 1.2. TLS 1.3 is always offered, and is the only version if all names are of its suites.

    Args:
        names: Java's names, as ``ssl.cipher.suites`` lists them.
    """
    older = [suite for suite in map(openssl_cipher, names) if suite]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            text = ",".join(names)
            raise ConfigException("ssl.cipher.suites", text, f"OpenSSL knows none of them: {error}") from error
    elif names:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def trust(context: ssl.SSLContext, certificates: str) -> None:
    """Trusts certificates (PEM). As in Java, this includes certificates that are not self-signed."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigException("ssl.truststore.location", None, f"no usable certificates in it: {error}") from error


def load_key(context: ssl.SSLContext, material: KeyMaterial, location: str) -> None:
    """Loads a key. OpenSSL takes only file names, so the key is in a file in memory that only this process sees."""
    handle = os.memfd_create("penstock-tls")
    try:
        with os.fdopen(handle, "w", encoding="latin-1") as file:
            file.write(f"{material.key}\n{material.chain}\n")
            file.flush()
            # A function, so that a missing password is an error instead of a prompt on the terminal.
            context.load_cert_chain(f"/proc/self/fd/{handle}", password=lambda: material.password)
    except ssl.SSLError as error:
        raise ConfigException(
            "ssl.keystore.location", location or "(text)", f"key and certificates cannot be used: {error}"
        ) from error


_PEM_MARK: Final = b"-----BEGIN "
_MOST_BYTES: Final = 16 << 20
_CERTIFICATE, _PRIVATE_KEY = "CERTIFICATE", "PRIVATE KEY"


@dataclass(frozen=True)
class KeyMaterial:
    """A private key and its certificates.

    Attributes:
        key: The key, PEM; may be encrypted.
        chain: Its certificates, PEM; empty if they are in the text of the key.
        password: Its password; empty for a key without encryption.
    """

    key: str = field(repr=False)
    chain: str
    password: str = field(default="", repr=False)


def key_material(settings: Mapping[str, str]) -> list[KeyMaterial]:
    """The private keys of a key store, or the private key in the settings themselves.

    Returns:
        The keys in the order of the file; empty if the settings name no key.
    """
    location = settings.get("ssl.keystore.location")
    key, chain = settings.get("ssl.keystore.key"), settings.get("ssl.keystore.certificate.chain")
    store_password = settings.get("ssl.keystore.password")
    key_password = settings.get("ssl.key.password") or store_password or ""
    if not location:
        return [KeyMaterial(key, chain, key_password)] if key and chain else []
    data = read_store("ssl.keystore.location", location)
    if format_of(data) is None and _PEM_MARK in data:
        return [KeyMaterial(data.decode("latin-1"), "", key_password)]
    store = _opened("ssl.keystore", location, data, store_password)
    if not store.keys:
        raise ConfigException(
            "ssl.keystore.location",
            location,
            f"The {store.format} file holds no private key, only {len(store.trusted)} trusted certificates; is it the "
            "trust store (ssl.truststore.location)?",
        )
    found = []
    for entry in store.keys:
        if not entry.chain:
            raise ConfigException(
                "ssl.keystore.location", location, f"The private key {entry.alias} has no certificate in the file"
            )
        try:
            recovered = pem(_PRIVATE_KEY, entry.recover(key_password))
        except KeyStoreFault as fault:
            raise _refused("ssl.keystore", location, fault) from fault
        found.append(KeyMaterial(recovered, "".join(pem(_CERTIFICATE, one) for one in entry.chain)))
    return found


def trusted_certificates(settings: Mapping[str, str]) -> str:
    """The certificates of a trust store, or the certificates in the settings; empty for none."""
    location = settings.get("ssl.truststore.location")
    if not location:
        return settings.get("ssl.truststore.certificates", "")
    data = read_store("ssl.truststore.location", location)
    if format_of(data) is None and _PEM_MARK in data:
        return data.decode("latin-1")
    anchors = _opened("ssl.truststore", location, data, settings.get("ssl.truststore.password")).anchors()
    if not anchors:
        raise ConfigException("ssl.truststore.location", location, "There is no certificate in it")
    return "".join(pem(_CERTIFICATE, one) for one in dict.fromkeys(anchors))


def _opened(group: str, location: str, data: bytes, password: str | None) -> KeyStore:
    try:
        return open_store(data, password or None)
    except KeyStoreFault as fault:
        raise _refused(group, location, fault) from fault


def _refused(group: str, location: str, fault: KeyStoreFault) -> ConfigException:
    """The exception about a file, without passwords."""
    match fault.blame:
        case Blame.FILE:
            return ConfigException(f"{group}.location", location, str(fault))
        case Blame.STORE_PASSWORD:
            return ConfigException(f"{group}.password", "[hidden]", f"{fault}: {location}")
        case Blame.KEY_PASSWORD:
            return ConfigException("ssl.key.password", "[hidden]", f"{fault}: {location}")


def read_store(setting: str, path: str) -> bytes:
    """Reads a file of keys or certificates that a setting names."""
    # A setting may name a device or a pipe, which never ends; the system reports no size for some files.
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ConfigException(setting, path, "It is not a file")
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ConfigException(setting, path, f"It is too large for a key store: more than {_MOST_BYTES} bytes")
        return data
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigException(setting, path, f"It cannot be read: {reason}") from error


_KEY_ENTRY, _TRUSTED_ENTRY = 1, 2
_DIGEST_SIZE: Final = 20
_DIGEST_WORDS: Final = b"Mighty Aphrodite"
# An object identifier, encoded: 1.3.6.1.4.1.42.2.17.1.1.
_SUN_PROTECTION: Final = bytes.fromhex("2b060104012a02110101")


def decode_jks(data: bytes, password: str | None) -> KeyStore:
    """Reads a JKS file.

    Args:
        password: The store's password; None to skip the check of the digest.
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
        if tag == _TRUSTED_ENTRY:
            trusted.append(reader.certificate(version))
        elif tag == _KEY_ENTRY:
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
    """Reads a file from its beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def text(self) -> str:
        # Java's modified UTF-8 encodes each surrogate. The text is only shown, so a replaced character does no harm.
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
    """Decrypts a private key."""
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
    """Decrypts a key with a stream of SHA-1 digests, each of the password and the previous digest."""
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
    """
    size, start = data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if start + size > len(data):
        raise ValueError("longer than what holds it")
    return data[start : start + size], data[start + size :]


def decode_pkcs12(data: bytes, password: str | None) -> KeyStore:
    """Reads a PKCS12 file."""
    try:
        found = load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _fault(data, password, error) from error
    others = [other.certificate for other in found.additional_certs]
    if found.key is None:
        own = [] if found.cert is None else [found.cert.certificate]
        return KeyStore("PKCS12", [], [_encoded(one) for one in [*own, *others]])
    chain = _chain(found, others)
    # A file with a key marks trusted certificates by an attribute that the library does not expose. The chain of a
    # key has no such mark, so the certificates outside of the chain are the trusted ones.
    left = list(others)
    for one in chain[1:]:
        left.remove(one)
    key = found.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    name = found.cert.friendly_name if found.cert is not None else None
    alias = name.decode("utf-8", "replace") if name else "(without a name)"
    entry = KeyEntry(alias, [_encoded(one) for one in chain], lambda _password: key)
    return KeyStore("PKCS12", [entry], [_encoded(one) for one in left])


def _chain(found: PKCS12KeyAndCertificates, others: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """The certificate of the key, its issuer's certificate, and so on."""
    if found.cert is None:
        return []
    chain = [found.cert.certificate]
    while chain[-1].issuer != chain[-1].subject:
        above = next((one for one in others if one.subject == chain[-1].issuer and one not in chain), None)
        if above is None:
            break
        chain.append(above)
    return chain


def _fault(data: bytes, password: str | None, error: Exception) -> KeyStoreFault:
    if "password" not in str(error).lower():
        return KeyStoreFault(Blame.FILE, f"The file begins like PKCS12 and is damaged, or something else: {error}")
    if password is None:
        return KeyStoreFault(Blame.STORE_PASSWORD, "The PKCS12 file needs its password")
    return KeyStoreFault(
        Blame.STORE_PASSWORD,
        "The password of the PKCS12 file is wrong, or the file is damaged (a key with another password than its file "
        "cannot be read)",
    )


def _encoded(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)
