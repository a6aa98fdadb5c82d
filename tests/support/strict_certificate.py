"""What RFC 5280 wants in a certificate, and Python 3.13 insists on."""

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

_CA_USAGE = x509.KeyUsage(True, False, False, False, False, True, True, False, False)


def identified(
    builder: x509.CertificateBuilder, key: PublicKey, issuer: PublicKey, *, ca: bool
) -> x509.CertificateBuilder:
    """With the identifiers of its own key and its issuer's, and an authority's right to issue.

    An authority may serve with its own certificate, too: browsers then want the signature usage.
    """
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), False
    )
    return builder.add_extension(_CA_USAGE, critical=True) if ca else builder
