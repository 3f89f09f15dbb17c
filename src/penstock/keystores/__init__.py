"""Java's key and trust stores: files in PKCS12 and JKS, read to PEM text that OpenSSL takes.

Start from:

- ``key_material``, ``trusted_certificates`` (``tls_settings``): the keys and certificates that the settings ``ssl.*``
  name.
- ``open_store`` (``tls_settings``): a ``KeyStore`` of a file, whose first bytes identify the format (JKS, PKCS12).
- ``load_key``, ``trust`` (``tls_settings``): keys and certificates in an ``ssl.SSLContext``.

The package writes no files. ``penstock.rest.server`` uses it for servers, ``penstock.kafka.settings.security`` for
clients.
"""
