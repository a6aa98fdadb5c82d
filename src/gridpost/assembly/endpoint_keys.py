"""Where the private keys of an endpoint are, as its configuration says."""

from __future__ import annotations

from gridpost.assembly.endpoint_configuration import EndpointConfiguration
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.keys.off_loop import KeyPool
from gridpost.stores.keys.ring import KeptKeyring
from gridpost.stores.keys.with_token import TokenCabinet

EndpointKeys = KeptKeyring | TokenCabinet


def open_keys(configuration: EndpointConfiguration, pool: KeyPool | None = None) -> EndpointKeys:
    """After the store: it has made the tables. Refuses a token that cannot do what is needed."""
    kept = _kept(configuration, pool)
    token = configuration.keys.token
    if token is None:
        return kept
    return TokenCabinet(kept, token.access(), token.kinds, configuration.keys_folder() / "token")


def _kept(configuration: EndpointConfiguration, pool: KeyPool | None) -> KeptKeyring:
    passphrase = configuration.passphrase()
    if configuration.keys.place == "folder" or configuration.postgres is None or not passphrase:
        return FileKeyring(configuration.keys_folder(), passphrase, pool)
    from gridpost.stores.postgres.keys import PostgresKeyring

    return PostgresKeyring(configuration.postgres.settings(), passphrase, pool)
