"""The XML bodies of the component-directory API (503 cl. 7.5, 7.8), to and from values of the core."""

from gridpost.wire.directory.bundle import InstallationBundle, decode_bundle, encode_bundle
from gridpost.wire.directory.component import decode_entry, decode_pushed, encode_component
from gridpost.wire.directory.components import (
    EncodedComponents,
    Query,
    ReceivedAnswer,
    decode_components,
    decode_query,
    encode_components,
    encode_query,
)
from gridpost.wire.directory.error import PeerError, decode_error, encode_error
from gridpost.wire.directory.registration import (
    RegistrationAnswer,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

MEDIA_TYPE = "application/xml"

__all__ = [
    "MEDIA_TYPE",
    "EncodedComponents",
    "InstallationBundle",
    "PeerError",
    "Query",
    "ReceivedAnswer",
    "RegistrationAnswer",
    "decode_bundle",
    "decode_components",
    "decode_entry",
    "decode_error",
    "decode_pushed",
    "decode_query",
    "decode_request",
    "decode_response",
    "encode_bundle",
    "encode_component",
    "encode_components",
    "encode_error",
    "encode_query",
    "encode_request",
    "encode_response",
]
