"""Java's key and trust stores: files in PKCS12, JKS and JCEKS, read to PEM text that OpenSSL takes.

The formats are in ``jks`` and ``pkcs12``, ``store`` tells them apart by their first bytes, ``tls_settings`` reads what
the settings ``ssl.*`` name. Nothing here writes a file.
"""
