"""TLS of the REST server out of Java's ``ssl.*`` settings.

Main functions: ``server_context``, ``client_context``. Reads files once, at the start of the worker;
``penstock.keystores`` knows their formats.

Source: org.apache.kafka.connect.runtime.rest.util.SSLUtils.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

from penstock.errors import ConfigException
from penstock.keystores.contexts import enabled_versions, load_key, set_ciphers, set_versions, trust
from penstock.keystores.tls_settings import key_material, trusted_certificates

_CLIENT_AUTH: Final = {
    "required": ssl.CERT_REQUIRED,
    "requested": ssl.CERT_OPTIONAL,
    "none": ssl.CERT_NONE,
}


def server_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Creates the TLS context of https listeners.

    Args:
        settings: ``ssl.*``, without the prefix of a group of listeners.

    Raises:
        ConfigException: there is no certificate, or a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    set_versions(context, enabled_versions(settings.get("ssl.enabled.protocols", "")))
    suites = settings.get("ssl.cipher.suites", "").split(",")
    set_ciphers(context, [name.strip() for name in suites if name.strip()])
    _load_keys(context, settings)
    auth = settings.get("ssl.client.auth", "none").strip().lower()
    if auth not in _CLIENT_AUTH:
        raise ConfigException("ssl.client.auth", auth, "String must be one of: required, requested, none")
    trusted = trusted_certificates(settings)
    if trusted:
        trust(context, trusted)
    elif auth != "none":
        raise ConfigException(
            "ssl.client.auth", auth, "Certificates of clients need ssl.truststore.location or .certificates"
        )
    context.verify_mode = _CLIENT_AUTH[auth]
    return context


def client_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Creates the TLS context for requests to other workers at https addresses.

    Args:
        settings: ``ssl.*``, without the prefix of a group of listeners.

    Raises:
        ConfigException: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    set_versions(context, enabled_versions(settings.get("ssl.enabled.protocols", "")))
    suites = settings.get("ssl.cipher.suites", "").split(",")
    set_ciphers(context, [name.strip() for name in suites if name.strip()])
    if trusted := trusted_certificates(settings):
        trust(context, trusted)
    else:
        context.load_default_certs()
    if key_material(settings):
        # Where listeners ask clients for a certificate, workers show the one that they serve with.
        _load_keys(context, settings)
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    context.check_hostname = algorithm == "https"
    return context


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
        load_key(context, material, settings.get("ssl.keystore.location") or "")
