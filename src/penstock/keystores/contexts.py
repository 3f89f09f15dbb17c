"""The configuration of an ``ssl.SSLContext``: keys, trusted certificates, versions of TLS, cipher suites.

Main functions: ``load_key``, ``trust``, ``set_versions``, ``set_ciphers``; ``enabled_versions`` and ``openssl_cipher``
read the settings. For servers (the REST API) and clients (Kafka's) alike. Any thread.

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from typing import Final

from penstock.errors import ConfigException
from penstock.keystores.tls_settings import KeyMaterial

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
    """Suites of TLS 1.2; those of TLS 1.3 are always offered, and alone when no other is named.

    Args:
        context: is told.
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
    """Trust certificates (PEM). As in Java every one of them is trusted, not only those that have signed themselves.

    Raises:
        ConfigException: there is no usable certificate among them.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigException("ssl.truststore.location", None, f"no usable certificates in it: {error}") from error


def load_key(context: ssl.SSLContext, material: KeyMaterial, location: str) -> None:
    """Hands a key to the library, which takes names of files only: a file in memory that only this process sees.

    Args:
        context: is told.
        material: the key with its certificates.
        location: where it is from, for the message.

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
