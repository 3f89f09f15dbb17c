"""TLS of the REST server out of Java's ``ssl.*`` settings.

Main function: ``server_context``. Reads files once, at the start of the worker; ``penstock.keystores`` knows their
formats.

Source: org.apache.kafka.connect.runtime.rest.util.SSLUtils.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Final

from penstock.errors import ConfigException
from penstock.kafka.client_families import openssl_cipher
from penstock.keystores.tls_settings import KeyMaterial, key_material, trusted_certificates

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "required": ssl.CERT_REQUIRED,
    "requested": ssl.CERT_OPTIONAL,
    "none": ssl.CERT_NONE,
}


def server_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """What https listeners are served with.

    Args:
        settings: ``ssl.*``, without the prefix of a group of listeners.

    Raises:
        ConfigException: there is no certificate, or a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, settings)
    _set_ciphers(context, settings)
    _load_keys(context, settings)
    auth = settings.get("ssl.client.auth", "none").strip().lower()
    if auth not in _CLIENT_AUTH:
        raise ConfigException("ssl.client.auth", auth, "String must be one of: required, requested, none")
    trusted = trusted_certificates(settings)
    if trusted:
        # As in Java every certificate of the store is trusted, not only those that have signed themselves.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=trusted)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigException("ssl.truststore.location", None, f"no usable certificates in it: {error}") from error
    elif auth != "none":
        raise ConfigException(
            "ssl.client.auth", auth, "Certificates of clients need ssl.truststore.location or .certificates"
        )
    context.verify_mode = _CLIENT_AUTH[auth]
    return context


def _set_versions(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    text = settings.get("ssl.enabled.protocols", "")
    named = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in named if name not in _VERSIONS]
    if unknown:
        raise ConfigException("ssl.enabled.protocols", text, f"Only {' and '.join(_VERSIONS)} are supported")
    versions = [_VERSIONS[name] for name in named] or list(_VERSIONS.values())
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _set_ciphers(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    """Suites of TLS 1.2; those of TLS 1.3 are always offered, and alone when no other is named."""
    text = settings.get("ssl.cipher.suites", "")
    named = [name.strip() for name in text.split(",") if name.strip()]
    older = [suite for suite in map(openssl_cipher, named) if suite]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            raise ConfigException("ssl.cipher.suites", text, f"OpenSSL knows none of them: {error}") from error
    elif named:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def _load_keys(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    materials = key_material(settings)
    if not materials:
        raise ConfigException(
            "An https listener needs a certificate: set ssl.keystore.location to a PKCS12, JKS or PEM file with the "
            "private key and the certificate chain, or ssl.keystore.key and ssl.keystore.certificate.chain to their "
            "text (with the prefix listeners.https. or without)"
        )
    # Of each kind of key (RSA, EC) the last one loaded counts; the first of the file should.
    for material in reversed(materials):
        try:
            _load(context, material)
        except ssl.SSLError as error:
            location = settings.get("ssl.keystore.location")
            raise ConfigException(
                "ssl.keystore.location", location or "(text)", f"key and certificates cannot be used: {error}"
            ) from error


def _load(context: ssl.SSLContext, material: KeyMaterial) -> None:
    """Hands a key to the library, which takes names of files only: a file in memory that only this process sees."""
    handle = os.memfd_create("penstock-tls")
    with os.fdopen(handle, "w", encoding="latin-1") as file:
        file.write(f"{material.key}\n{material.chain}\n")
        file.flush()
        # A function, so that a missing password is an error and not a question on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{handle}", password=lambda: material.password)
