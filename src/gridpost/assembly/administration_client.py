"""How the command line reaches the administration of a running directory."""

from __future__ import annotations

import json
import ssl

import httpx

from gridpost.assembly.directory_configuration import AdministrationSection
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.component_directory.administration import PREFIX


class AdministrationClient:
    """One request at a time. With TLS, the configured certificate is the one that must answer."""

    def __init__(self, section: AdministrationSection, token: str) -> None:
        host = f"[{section.host}]" if ":" in section.host else section.host
        if host in ("0.0.0.0", "[::]"):
            host = "localhost"
        self._token = token
        self._verify: ssl.SSLContext | bool = True
        scheme = "http"
        if section.certificate is not None:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(section.certificate)
            self._verify = context
        self._base = f"{scheme}://{host}:{section.port}{PREFIX}"

    def request(self, method: str, path: str, body: object = None) -> bytes:
        try:
            with httpx.Client(verify=self._verify, timeout=60, trust_env=False) as client:
                response = client.request(
                    method,
                    self._base + path,
                    json=body,
                    headers={"authorization": f"Bearer {self._token}"},
                )
        except httpx.HTTPError as error:
            raise Refusal(
                Rule.UNREACHABLE,
                f"the directory does not answer at {self._base}: is it running?",
                str(error),
            ) from None
        if response.is_success:
            return response.content
        raise _refusal(response)


def _refusal(response: httpx.Response) -> Refusal:
    """The refusal of the directory, with the id under which it was journalled there."""
    try:
        told = response.json()["refused"]
        rule = Rule.__members__.get(told.get("rule", ""), Rule.INTERNAL)
        refusal = Refusal(rule, str(told["message"]), str(told.get("details", "")))
        refusal.id = str(told.get("id", refusal.id))
        return refusal
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
        return Refusal(Rule.INTERNAL, f"the directory answered {response.status_code}")
