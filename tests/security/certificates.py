"""Certificates for the tests: an authority, a server's and clients', made when they are needed."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

KEY_PASSWORD = "key-password-of-the-tests"
DAY = datetime.timedelta(days=1)


class Authority:
    """An authority that signs certificates; all files are PEM.

    Args:
        folder: the folder of the files.
        name: the common name of the authority.
    """

    def __init__(self, folder: Path, name: str = "kcore tests") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(self._name, self._key.public_key(), authority=True)
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _sign(self, name: x509.Name, key: ec.EllipticCurvePublicKey, authority: bool = False) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )  # fmt: skip
        if authority:
            usage = x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
                decipher_only=False,
            )  # fmt: skip
            builder = builder.add_extension(usage, critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def issue(self, file: str, *name: tuple[x509.ObjectIdentifier, str], password: str | None = None) -> Path:
        """Writes a file with a certificate and its private key. Returns its path.

        The subject of the certificate has the parts of `name`, in this order.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in name])
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            protection = serialization.BestAvailableEncryption(password.encode())
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
        path = self._folder / file
        path.write_bytes(secret + self._sign(subject, key.public_key()).public_bytes(serialization.Encoding.PEM))
        return path
