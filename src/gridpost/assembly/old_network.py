"""The MADES 1.1 side of an endpoint from its configuration."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gridpost.assembly.endpoint_configuration import EndpointConfiguration
from gridpost.assembly.old_network_configuration import OldNetworkSection
from gridpost.services.directory_client.node_soap import NodeSoapClient
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.old_network.network import OldNetwork
from gridpost.stores.keys.awaited_token import AwaitedToken
from gridpost.stores.keys.off_loop import KeyPool
from gridpost.stores.keys.papers import PaperKeyring
from gridpost.transports.https import ClientTls, HttpsClient, Keeping


def old_network(
    section: OldNetworkSection,
    configuration: EndpointConfiguration,
    context: EndpointContext,
    pool: KeyPool | None = None,
) -> OldNetwork:
    """Shares the store, the channels and the rules of `context`, and has keys of its own."""
    clock = context.clock
    device = None if section.token is None else AwaitedToken(section.token.access())
    keys = PaperKeyring(section.papers, configuration.passphrase(), pool, device)
    # Cl. 3.8: whatever a node is asked may be asked again, so that connections may be kept.
    https = HttpsClient(
        ClientTls(lambda: keys.credentials(clock.now())), proxy=section.proxy, keeping=Keeping()
    )

    async def close() -> None:
        await https.close()
        if device is not None:
            await asyncio.to_thread(device.close)

    return OldNetwork(
        replace(context, keyring=keys),
        section.settings(configuration.contact.organization),
        NodeSoapClient(https),
        lambda: keys.token_signer(clock.now()),
        keys.roots,
        keys.refresh,
        close,
        keys.certificates,
    )
