"""Settings that are translated together: compression, TLS, SASL.

Main functions: `compression`, `tls`, `sasl`. Each takes all Java settings and gives what librdkafka must be told, with
the faults found.

Source: org.apache.kafka.common.config.{SslConfigs, SaslConfigs}; org.apache.kafka.common.security.JaasConfig.
Thread: any; apart from reading key stores, everything is pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import ConfigException
from penstock.kafka import client_values as value
from penstock.kafka.client_values import RdValue
from penstock.keystores.tls_settings import key_material, trusted_certificates


@dataclass
class Part:
    """What one family gives: librdkafka's settings, faults by Java name, and what was left out by Java name."""

    librdkafka: dict[str, RdValue] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)


_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_JAVA_LEVELS = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
_LEVELS = {"gzip": (-1, 9), "lz4": (0, 12), "zstd": (1, 12)}


def compression(settings: Mapping[str, str]) -> Part:
    """`compression.type` and the level of that type; levels beyond librdkafka's are taken to the nearest."""
    part = Part()
    kind = settings.get("compression.type", "none").strip()
    if kind not in _COMPRESSIONS:
        part.faults["compression.type"] = f"String must be one of: {', '.join(_COMPRESSIONS)}"
    if "compression.type" in settings and kind in _COMPRESSIONS:
        part.librdkafka["compression.type"] = kind
    for name, (java_lowest, java_highest) in _JAVA_LEVELS.items():
        key = f"compression.{name}.level"
        if key not in settings:
            continue
        try:
            level = value.java_number(settings[key])
            if not java_lowest <= level <= java_highest or (name == "gzip" and level == 0):
                raise ValueError(f"Value must be between {java_lowest} and {java_highest}")
        except ValueError as error:
            part.faults[key] = str(error)
            continue
        if name == kind:
            lowest, highest = _LEVELS[name]
            part.librdkafka["compression.level"] = min(max(level, lowest), highest)
        else:
            part.unused[key] = f"compression.type is {kind}"
    return part


def tls(settings: Mapping[str, str]) -> Part:
    """Key and trust stores (PEM as file or text, PKCS12, JKS), host name check, cipher suites.

    Stores count for encrypted connections only: a worker's file may name those of its https listeners. What is not PEM
    is read here, and handed to the client as text.
    """
    part = Part()
    if settings.get("security.protocol", "PLAINTEXT").strip().upper() in ("SSL", "SASL_SSL"):
        _trust_store(settings, part)
        _key_store(settings, part)
    if "ssl.endpoint.identification.algorithm" in settings:
        word = settings["ssl.endpoint.identification.algorithm"].strip().lower()
        if word in ("https", "", "none"):
            part.librdkafka["ssl.endpoint.identification.algorithm"] = word or "none"
        else:
            part.faults["ssl.endpoint.identification.algorithm"] = "String must be one of: https, or empty for no check"
    suites = value.items(settings.get("ssl.cipher.suites", ""))
    named = [suite for suite in map(openssl_cipher, suites) if suite]
    if named:
        part.librdkafka["ssl.cipher.suites"] = ":".join(named)
    elif suites:
        part.unused["ssl.cipher.suites"] = "the suites of TLS 1.3 are always offered"
    return part


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


def _trust_store(settings: Mapping[str, str], part: Part) -> None:
    location = settings.get("ssl.truststore.location", "")
    kind = settings.get("ssl.truststore.type", "JKS").strip().upper()
    if pem := settings.get("ssl.truststore.certificates", ""):
        if location:
            part.faults["ssl.truststore.certificates"] = "set either this or ssl.truststore.location"
        part.librdkafka["ssl.ca.pem"] = pem
    elif location and kind == "PEM":
        part.librdkafka["ssl.ca.location"] = location
        if settings.get("ssl.truststore.password"):
            part.unused["ssl.truststore.password"] = "a PEM file of certificates has no password"
    elif location:
        try:
            part.librdkafka["ssl.ca.pem"] = trusted_certificates(settings)
        except ConfigException as error:
            _add_fault(part, error)


def _key_store(settings: Mapping[str, str], part: Part) -> None:
    location = settings.get("ssl.keystore.location", "")
    kind = settings.get("ssl.keystore.type", "JKS").strip().upper()
    key, chain = settings.get("ssl.keystore.key", ""), settings.get("ssl.keystore.certificate.chain", "")
    key_password = settings.get("ssl.key.password", "")
    if key or chain:
        if not (key and chain):
            missing = "ssl.keystore.certificate.chain" if key else "ssl.keystore.key"
            part.faults[missing] = "a private key and its certificate chain are needed together"
        part.librdkafka.update({"ssl.key.pem": key, "ssl.certificate.pem": chain})
    elif location and kind == "PEM":
        part.librdkafka.update({"ssl.key.location": location, "ssl.certificate.location": location})
    elif location:
        try:
            # The client takes one key: the first of the file.
            material = key_material(settings)[0]
        except ConfigException as error:
            _add_fault(part, error)
            return
        part.librdkafka.update({"ssl.key.pem": material.key, "ssl.certificate.pem": material.chain or material.key})
        key_password = material.password
    if key_password:
        part.librdkafka["ssl.key.password"] = key_password


def _add_fault(part: Part, error: ConfigException) -> None:
    part.faults[error.name or "ssl.keystore.location"] = error.reason


_HANDLERS = ("OAuthBearerLoginCallbackHandler",)
_RETRIEVERS = {
    "DefaultJwtRetriever": "client_credentials",
    "ClientCredentialsJwtRetriever": "client_credentials",
    "JwtBearerJwtRetriever": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}


def sasl(settings: Mapping[str, str]) -> Part:
    """Mechanism and credentials: PLAIN, SCRAM, OAUTHBEARER with a token endpoint, GSSAPI."""
    part = Part()
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    if not protocol.startswith("SASL"):
        return part
    mechanism = settings.get("sasl.mechanism", "GSSAPI").strip()
    part.librdkafka["sasl.mechanism"] = mechanism
    try:
        module, options = parse_jaas(settings["sasl.jaas.config"]) if "sasl.jaas.config" in settings else ("", {})
    except ValueError as error:
        part.faults["sasl.jaas.config"] = str(error)
        return part
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        _password_login(mechanism, module, options, part)
    elif mechanism == "OAUTHBEARER":
        _token_login(settings, module, options, part)
    elif mechanism == "GSSAPI":
        _kerberos_login(settings, module, options, part)
    else:
        part.faults["sasl.mechanism"] = (
            "String must be one of: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI"
        )
    return part


def _password_login(mechanism: str, module: str, options: Mapping[str, str], part: Part) -> None:
    expected = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    if module != expected or not {"username", "password"} <= options.keys():
        part.faults["sasl.jaas.config"] = (
            f"{mechanism} needs the {expected} of Kafka with username and password, as in: "
            f'...{expected} required username="me" password="secret";'
        )
        return
    if options.get("tokenauth", "false").lower() == "true":
        part.faults["sasl.jaas.config"] = "delegation tokens (tokenauth) are not available"
        return
    part.librdkafka.update({"sasl.username": options["username"], "sasl.password": options["password"]})


def _token_login(settings: Mapping[str, str], module: str, options: Mapping[str, str], part: Part) -> None:
    if module not in ("", "OAuthBearerLoginModule"):
        part.faults["sasl.jaas.config"] = f"OAUTHBEARER needs Kafka's OAuthBearerLoginModule, not {module}"
    handler = settings.get("sasl.login.callback.handler.class", "").rpartition(".")[2]
    if handler and handler not in _HANDLERS:
        part.faults["sasl.login.callback.handler.class"] = (
            "a Java callback handler cannot be loaded; Kafka's own OAuthBearerLoginCallbackHandler with "
            "sasl.oauthbearer.token.endpoint.url is available"
        )
    retriever = settings.get("sasl.oauthbearer.jwt.retriever.class", "DefaultJwtRetriever").rpartition(".")[2]
    if retriever not in _RETRIEVERS:
        part.faults["sasl.oauthbearer.jwt.retriever.class"] = (
            f"a Java class cannot be loaded; available: {', '.join(_RETRIEVERS)}"
        )
        return
    url = settings.get("sasl.oauthbearer.token.endpoint.url", "")
    if not url.startswith(("http://", "https://")):
        part.faults["sasl.oauthbearer.token.endpoint.url"] = (
            "OAUTHBEARER needs the http or https address of a token endpoint; tokens in files and unsecured tokens are "
            "not available"
        )
        return
    part.librdkafka["sasl.oauthbearer.method"] = "oidc"
    part.librdkafka["sasl.oauthbearer.grant.type"] = _RETRIEVERS[retriever]
    credentials = {
        "sasl.oauthbearer.client.id": ("sasl.oauthbearer.client.credentials.client.id", "clientId"),
        "sasl.oauthbearer.client.secret": ("sasl.oauthbearer.client.credentials.client.secret", "clientSecret"),
        "sasl.oauthbearer.scope": ("sasl.oauthbearer.scope", "scope"),
    }
    for target, (name, option) in credentials.items():
        if found := settings.get(name) or options.get(option, ""):
            part.librdkafka[target] = found


def _kerberos_login(settings: Mapping[str, str], module: str, options: Mapping[str, str], part: Part) -> None:
    if module != "Krb5LoginModule":
        part.faults["sasl.jaas.config"] = (
            "GSSAPI (the default of sasl.mechanism) needs the Krb5LoginModule with a keyTab"
        )
        return
    part.librdkafka["sasl.kerberos.service.name"] = settings.get("sasl.kerberos.service.name") or options.get(
        "serviceName", "kafka"
    )
    for option, target in (("principal", "sasl.kerberos.principal"), ("keyTab", "sasl.kerberos.keytab")):
        if option in options:
            part.librdkafka[target] = options[option]
    if command := settings.get("sasl.kerberos.kinit.cmd", ""):
        part.librdkafka["sasl.kerberos.kinit.cmd"] = (
            f'{command} -t "%{{sasl.kerberos.keytab}}" -k %{{sasl.kerberos.principal}}'
        )


_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;="']+)|([=;]))""", re.DOTALL)


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    r"""The login module's simple class name and its options.

    >>> parse_jaas('org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b;\\"c";')
    ('PlainLoginModule', {'username': 'a', 'password': 'b;"c'})

    Raises:
        ValueError: not one login module with a control flag and options, ended by a semicolon; the text is not shown.
    """
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError("a quote is not closed")
        double, single, word, mark = found.groups()
        quoted = double if double is not None else single
        tokens.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else mark or word)
        position = found.end()
    if len(tokens) < 3 or tokens[-1] != ";":
        raise ValueError('expected: <login module class> required <option>="<value>" ...;')
    module, flag, body = tokens[0], tokens[1], tokens[2:-1]
    if flag.lower() not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError("the word after the login module must be required, requisite, sufficient or optional")
    if ";" in body and body.index(";") % 3 == 0:
        raise ValueError("only one login module is possible")
    if len(body) % 3 or any(mark != "=" for mark in body[1::3]):
        raise ValueError('an option is not of the form name="value"')
    return module.rpartition(".")[2], dict(zip(body[0::3], body[2::3], strict=True))
