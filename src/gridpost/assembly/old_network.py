"""The MADES 1.1 side of an endpoint from its configuration."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from gridpost.assembly.endpoint_configuration import EndpointConfiguration
from gridpost.assembly.old_network_configuration import OldNetworkSection
from gridpost.services.directory_client.node_soap import NodeSoapClient
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.old_network.network import OldNetwork
from gridpost.stores.keys.papers import PaperKeyring
from gridpost.transports.https import ClientTls, HttpsClient, Keeping


def old_network(
    section: OldNetworkSection,
    configuration: EndpointConfiguration,
    context: EndpointContext,
    pool: ThreadPoolExecutor | None = None,
) -> OldNetwork:
    """Shares the store, the channels and the rules of `context`, and has keys of its own."""
    clock = context.clock
    keys = PaperKeyring(section.papers, configuration.passphrase(), pool)
    # Cl. 3.8: whatever a node is asked may be asked again, so that connections may be kept.
    https = HttpsClient(
        ClientTls(lambda: keys.credentials(clock.now())), proxy=section.proxy, keeping=Keeping()
    )
    return OldNetwork(
        replace(context, keyring=keys),
        section.settings(configuration.contact.organization),
        NodeSoapClient(https),
        lambda: keys.token_signer(clock.now()),
        keys.roots,
        keys.refresh,
        https.close,
        keys.certificates,
    )
