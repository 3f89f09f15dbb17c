"""Keys and trusted certificates of the settings ``ssl.*``, as PEM text and in an ``ssl.SSLContext``.

Main functions: ``key_material``, ``trusted_certificates`` read the files and keep nothing; ``load_key``, ``trust``,
``set_versions``, ``set_ciphers`` configure a context; ``enabled_versions`` and ``openssl_cipher`` read the settings.
For servers (the REST API) and clients (Kafka's) alike.

Thread: any.
Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.errors import ConfigException
from penstock.keystores.store import Blame, KeyStore, KeyStoreFault, format_of, open_store, pem

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def enabled_versions(text: str) -> tuple[str, ...]:
    """The versions that ``ssl.enabled.protocols`` names; none for all.

    Raises:
        ConfigException: one of them is not supported.
    """
    named = tuple(name.strip() for name in text.split(",") if name.strip())
    if any(name not in _VERSIONS for name in named):
        raise ConfigException("ssl.enabled.protocols", text, f"Only {' and '.join(_VERSIONS)} are supported")
    return named


def set_versions(context: ssl.SSLContext, named: Sequence[str]) -> None:
    """Allow these versions of TLS only; all of them where none is named."""
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
    """Sets the suites of TLS 1.2; those of TLS 1.3 are always offered, and are the only ones if no other is named.

    Args:
        context: the context to change.
        names: Java's names, as ``ssl.cipher.suites`` lists them.

    Raises:
        ConfigException: OpenSSL knows none of them.
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
    """Trust certificates (PEM). As in Java every one of them is trusted, not only the self-signed ones.

    Raises:
        ConfigException: none of them is a usable certificate.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigException("ssl.truststore.location", None, f"no usable certificates in it: {error}") from error


def load_key(context: ssl.SSLContext, material: KeyMaterial, location: str) -> None:
    """Hands a key to the library, which takes names of files only: a file in memory that only this process sees.

    Args:
        context: the context to change.
        material: the key with its certificates.
        location: its origin, for the message.

    Raises:
        ConfigException: they cannot be used, or the password is wrong.
    """
    handle = os.memfd_create("penstock-tls")
    try:
        with os.fdopen(handle, "w", encoding="latin-1") as file:
            file.write(f"{material.key}\n{material.chain}\n")
            file.flush()
            # A function, so that a missing password is an error and not a question on the terminal.
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
    """The private keys of a key store, or the one that the settings hold themselves.

    Args:
        settings: ``ssl.*``.

    Returns:
        In the order of the file; empty when the settings name no key.

    Raises:
        ConfigException: a file cannot be read, a password is wrong, or it has no key.
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
    """The certificates of a trust store, or the certificates in the settings; empty for none.

    Args:
        settings: ``ssl.*``.

    Raises:
        ConfigException: the file cannot be read, its password is wrong, or it has no certificate.
    """
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
    """The exception about a file. Passwords are not shown."""
    match fault.blame:
        case Blame.FILE:
            return ConfigException(f"{group}.location", location, str(fault))
        case Blame.STORE_PASSWORD:
            return ConfigException(f"{group}.password", "[hidden]", f"{fault}: {location}")
        case Blame.KEY_PASSWORD:
            return ConfigException("ssl.key.password", "[hidden]", f"{fault}: {location}")


def read_store(setting: str, path: str) -> bytes:
    """Reads a file of keys or certificates that a setting names.

    Raises:
        ConfigException: It is no file, cannot be read, or is too large for one.
    """
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
