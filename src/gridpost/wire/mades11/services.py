"""The five WSDL files of MADES 1.1 cl. 5.6: which operations each has, and where documents stand."""

from __future__ import annotations

from gridpost.wire.soap.interface import Interface, Operation

NAMESPACE = "http://mades.entsoe.eu/"


def tag(name: str) -> str:
    return f"{{{NAMESPACE}}}{name}"


UPLOADED_CONTENT = (tag("UploadMessagesRequest"), "messages", "content")
DOWNLOADED_CONTENT = (tag("DownloadMessagesResponse"), "messages", "content")
SENT_CONTENT = (tag("SendMessageRequest"), "message", "content")

_LARGE = {"UploadMessages": (UPLOADED_CONTENT,), "SendMessage": (SENT_CONTENT,)}


def _interface(name: str, *operations: str) -> Interface:
    return Interface(
        f"mades11/{name}.wsdl",
        NAMESPACE,
        [Operation(o, tag(f"{o}Request"), NAMESPACE + o, _LARGE.get(o, ())) for o in operations],
    )


AUTHENTICATION = _interface("MadesAuthenticationService", "GetAuthenticationToken")
MESSAGING = _interface(
    "MadesInternalMessaging", "UploadMessages", "DownloadMessages", "ConfirmDownload"
)
DIRECTORY = _interface(
    "MadesDirectoryService", "GetCertificate", "GetComponent", "SetComponentMversion"
)
SYNCHRONIZATION = _interface(
    "MadesNodeSynchronizationService", "GetAllDirectoryData", "GetNodeMversion"
)
ENDPOINT = _interface(
    "MadesEndpoint",
    "SendMessage",
    "ReceiveMessage",
    "ConfirmReceiveMessage",
    "ConnectivityTest",
    "CheckMessageStatus",
)
NODE_INTERFACES = {
    "MadesAuthenticationService": AUTHENTICATION,
    "MadesInternalMessaging": MESSAGING,
    "MadesDirectoryService": DIRECTORY,
    "MadesNodeSynchronizationService": SYNCHRONIZATION,
}
"""By the name of the WSDL, which is also the last part of its path on a node."""
