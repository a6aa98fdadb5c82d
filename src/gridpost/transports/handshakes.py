"""What a failed TLS handshake says of the peer, in the words of a refusal; its certificate is not shown.

The same for every listener, so that an operator reads the same reason whatever was spoken inside TLS.
"""

from __future__ import annotations

import ssl
from typing import Final

from gridpost.core.refusal import Refusal, Rule

# X509_V_ERR_*: the certificate is not valid yet, or not any more.
_OUT_OF_TIME: Final = frozenset({9, 10})


def not_let_in(error: ssl.SSLError) -> Refusal:
    """503 cl. 8.4.1."""
    if isinstance(error, ssl.SSLCertVerificationError):
        rule = (
            Rule.CERTIFICATE_EXPIRED
            if error.verify_code in _OUT_OF_TIME
            else Rule.CHAIN_NOT_TRUSTED
        )
        return Refusal(rule, f"the certificate was not accepted: {error.verify_message}")
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return Refusal(Rule.PEER_UNKNOWN, "the peer showed no certificate")
    return Refusal(Rule.TLS_HANDSHAKE, "no TLS handshake", str(error.reason or error))


def too_slow(seconds: float) -> Refusal:
    return Refusal(Rule.TLS_HANDSHAKE, f"the handshake took longer than {seconds:g} s")
