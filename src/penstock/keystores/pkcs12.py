"""The format PKCS12, as ``keytool`` and OpenSSL write it.

Main function: ``decode_pkcs12``. Pure.

Source: sun.security.pkcs12.PKCS12KeyStore for the trusted certificates.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12

from penstock.keystores.store import Blame, KeyEntry, KeyStore, KeyStoreFault


def decode_pkcs12(data: bytes, password: str | None) -> KeyStore:
    """Reads a PKCS12 file.

    Args:
        data: The whole file.
        password: That of the file; its key has the same.

    Raises:
        KeyStoreFault: damaged, or the password is wrong.
    """
    try:
        found = load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _fault(data, password, error) from error
    others = [other.certificate for other in found.additional_certs]
    if found.key is None:
        own = [] if found.cert is None else [found.cert.certificate]
        return KeyStore("PKCS12", [], [_der(one) for one in [*own, *others]])
    chain = _chain(found, others)
    # A file with a key marks trusted certificates by an attribute that the library does not show. The chain of a key
    # comes without that mark, so the certificates outside of the chain are the trusted ones.
    left = list(others)
    for one in chain[1:]:
        left.remove(one)
    key = found.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    name = found.cert.friendly_name if found.cert is not None else None
    alias = name.decode("utf-8", "replace") if name else "(without a name)"
    entry = KeyEntry(alias, [_der(one) for one in chain], lambda _password: key)
    return KeyStore("PKCS12", [entry], [_der(one) for one in left])


def _chain(found: PKCS12KeyAndCertificates, others: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """The certificate of the key, the one that has signed it, and so on."""
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


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)
