"""The component-directory API (503 Table 25) as its clients call it: values out, values or refusals back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from urllib.parse import quote

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, ComponentType
from gridpost.core.https import Authorise, HttpAnswer, HttpRequest
from gridpost.core.identifiers import clip
from gridpost.core.ports import HttpsCaller
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import RegistrationRequest
from gridpost.wire.directory import (
    Query,
    ReceivedAnswer,
    RegistrationAnswer,
    decode_components,
    decode_entry,
    decode_error,
    decode_response,
    encode_component,
    encode_query,
    encode_request,
)
from gridpost.wire.x509 import read_certificate

_API = "/api/v1"
_PUSHED = {ComponentType.ENDPOINT: "endpoints", ComponentType.BROKER: "brokers"}


class DirectoryExchange:
    """One component-directory, dialled by its URLs and known by its certificate."""

    def __init__(self, caller: HttpsCaller, urls: Sequence[str], authorise: Authorise) -> None:
        self._caller = caller
        self._urls = tuple(urls)
        self._authorise = authorise

    async def synchronise(self, query: Query) -> ReceivedAnswer:
        answer = await self._ask("GET", "/components", encode_query(query), (200,))
        # A large system takes a second to read.
        return await asyncio.to_thread(decode_components, answer.body)

    async def push(self, component: Component) -> tuple[Component, tuple[str, ...]]:
        """The entry as the directory holds it now, and what is wrong with it."""
        path = f"/{_PUSHED[component.type]}/{quote(component.code, safe='')}"
        answer = await self._ask("PUT", path, encode_component(component), (200,))
        return decode_entry(answer.body, component.type)

    async def register(
        self, request: RegistrationRequest
    ) -> tuple[RegistrationAnswer, tuple[Certificate, ...]]:
        """The answer, and the INTEGRATED CA by which the server authenticated itself."""
        # 200 is how a directory may answer a request that it has already; 409 with a location is
        # another way (see divergences, repeated registration).
        answer = await self._ask("POST", "/registrations", encode_request(request), (201, 200, 409))
        if answer.status == 409:
            known_as = answer.headers.get("location", "").rpartition("/registrations/")[2]
            if not known_as:
                raise refused(answer)
            return await self.registration(known_as)
        return decode_response(answer.body), _authorities(answer)

    async def registration(
        self, registration_id: str
    ) -> tuple[RegistrationAnswer, tuple[Certificate, ...]]:
        path = f"/registrations/{quote(registration_id, safe='')}"
        answer = await self._ask("GET", path, b"", (200,))
        return decode_response(answer.body), _authorities(answer)

    async def _ask(
        self, method: str, path: str, body: bytes, expected: tuple[int, ...]
    ) -> HttpAnswer:
        answer = await self._caller.request(
            HttpRequest(method, _API + path, body), urls=self._urls, authorise=self._authorise
        )
        if answer.status not in expected:
            raise refused(answer)
        return answer


def refused(answer: HttpAnswer) -> Refusal:
    """503 Table 24 as a refusal; what the directory says of itself may pass, the rest will not."""
    try:
        error = decode_error(answer.body)
        said, reference = str(error), f"its reference: {error.id}"
    except Refusal:
        said, reference = clip(answer.body.decode("utf-8", "replace"), 200), ""
    message = f"{answer.url} answered {answer.status}: {clip(said, 500)}"
    return Refusal(_RULES.get(answer.status, _otherwise)(answer.status), message, reference)


def _otherwise(status: int) -> Rule:
    return Rule.UNREACHABLE if status >= 500 else Rule.REFUSED_BY_DIRECTORY


_RULES: dict[int, Callable[[int], Rule]] = {
    401: lambda _: Rule.ACCESS_DENIED,
    403: lambda _: Rule.ACCESS_DENIED,
    404: lambda _: Rule.RESOURCE_UNKNOWN,
    409: lambda _: Rule.REGISTRATION_CODE_TAKEN,
}


def _authorities(answer: HttpAnswer) -> tuple[Certificate, ...]:
    return tuple(read_certificate(der, CertificateKind.INTEGRATED_CA) for der in answer.chain[1:2])
