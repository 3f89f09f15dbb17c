"""TLS of the REST server out of Java's ``ssl.*`` settings.

Main function: ``server_context``. Reads files once, at the start of the worker.

Source: org.apache.kafka.connect.runtime.rest.util.SSLUtils.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.errors import ConfigException

_PEM_MARK: Final = "-----BEGIN "
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ADVICE: Final = (
    "Java key stores and PKCS12 files cannot be read; write it as PEM (openssl pkcs12 -in FILE -out FILE.pem, after "
    "keytool -importkeystore for a JKS file) and name that file"
)
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
    _load_key(context, settings)
    auth = settings.get("ssl.client.auth", "none").strip().lower()
    if auth not in _CLIENT_AUTH:
        raise ConfigException("ssl.client.auth", auth, "String must be one of: required, requested, none")
    trusted = _trusted(settings)
    if trusted:
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


def _load_key(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    location = settings.get("ssl.keystore.location")
    key, chain = settings.get("ssl.keystore.key"), settings.get("ssl.keystore.certificate.chain")
    password = settings.get("ssl.key.password") or settings.get("ssl.keystore.password") or ""
    if location:
        pem = _pem_file("ssl.keystore.location", location)
    elif key and chain:
        pem = f"{key}\n{chain}\n"
    else:
        raise ConfigException(
            "An https listener needs a certificate: set ssl.keystore.location to a PEM file with the private key and "
            "the certificate chain, or ssl.keystore.key and ssl.keystore.certificate.chain to their text (with the "
            "prefix listeners.https. or without)"
        )
    # The library reads keys from files only.
    handle, name = tempfile.mkstemp(prefix="penstock-", suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(pem)
        # A function, so that a missing password is an error and not a question on the terminal.
        context.load_cert_chain(name, password=lambda: password)
    except ssl.SSLError as error:
        raise ConfigException(
            "ssl.keystore.location", location or "(text)", f"key and certificates cannot be used: {error}"
        ) from error
    finally:
        os.unlink(name)


def _trusted(settings: Mapping[str, str]) -> str:
    text = settings.get("ssl.truststore.certificates", "")
    location = settings.get("ssl.truststore.location")
    return text if not location else _pem_file("ssl.truststore.location", location)


def _pem_file(setting: str, path: str) -> str:
    try:
        text = Path(path).read_bytes().decode("latin-1")
    except OSError as error:
        raise ConfigException(setting, path, f"It cannot be read: {error.strerror or error}") from error
    if _PEM_MARK not in text:
        raise ConfigException(setting, path, _ADVICE)
    return text
