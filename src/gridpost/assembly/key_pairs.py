"""What `gridpost check-config` finds in private keys: each must be that of the certificate beside it.

A start would show the certificate and fail at the first connection; here the file is named.
"""

from __future__ import annotations

from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError

from gridpost.assembly.endpoint_configuration import EndpointConfiguration
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.keys.papers import PaperKeyring


def check_pair(certificate: Path | None, key: Path | None) -> None:
    """Refuses a key that belongs to another certificate; a section without both has nothing to check."""
    if certificate is None or key is None:
        return
    try:
        # An encrypted key would be asked for its passphrase on the terminal.
        SSLContext(PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, lambda: "")
    except SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise Refusal(
                Rule.BAD_KEY,
                f"{key} is not the private key of the certificate in {certificate}",
                "the certificate of this component comes first in its file, its issuers behind it",
            ) from None
        raise Refusal(Rule.BAD_KEY, f"{certificate} and {key} cannot be used", str(error)) from None
    except OSError as error:
        raise Refusal(
            Rule.USAGE, f"{certificate} or {key} cannot be read: {error.strerror}"
        ) from None


def check_endpoint_pairs(configuration: EndpointConfiguration) -> None:
    """Those of its ports, those that it has enrolled with, and those of an old network."""
    for section in (configuration.api, configuration.amqp):
        if section is not None:
            check_pair(section.certificate, section.key)
    folder, passphrase = configuration.keys_folder(), configuration.passphrase()
    # Before it is enrolled there are none, and looking must not make the folder.
    if configuration.keys.place == "folder" and folder.is_dir():
        FileKeyring(folder, passphrase)
    if configuration.old_network is not None:
        PaperKeyring(configuration.old_network.papers, passphrase)
