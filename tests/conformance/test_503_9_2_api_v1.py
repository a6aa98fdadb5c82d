"""503 cl. 9.2: a client of the first version of the directory services goes on working.

`api_v1/` holds the schemas as they were when /api/v1 was first released; they never change. The
requests are texts of that time. Whatever the directory has learnt since: it takes these, and what it
answers is valid for a client that checks it by those schemas.
"""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from lxml import etree

from gridpost.core.identifiers import ComponentCode
from support.api_texts import PATH, broker_entry, entry, query, registration
from support.component_directory import BROKER_KINDS, TestDirectory
from support.pki import ENDPOINT_KINDS, TestComponent

FROZEN = Path(__file__).parent / "api_v1"
NAMESPACE = "http://mades.entsoe.eu/componentDirectory"


def checked(response: httpx.Response, status: int, schema: str, root: str) -> etree._Element:
    """As the old client does it: by the schema that it has."""
    assert response.status_code == status, response.text
    document = etree.fromstring(response.content)
    etree.XMLSchema(etree.parse(FROZEN / schema)).assertValid(document)
    assert document.tag == f"{{{NAMESPACE}}}{root}"
    return document


@pytest.fixture
async def directory() -> TestDirectory:
    return await TestDirectory().started()


@pytest.mark.req("503-9.2-g")
async def test_every_operation_of_the_first_version_still_does_what_it_did(
    directory: TestDirectory,
) -> None:
    components = {}
    for code, kinds in (("E1", ENDPOINT_KINDS), ("B1", BROKER_KINDS)):
        kit = await directory.invited(code)
        chain = (kit.certificate, kit.issuer)
        posted = await directory.request(
            "POST", "/api/v1/registrations", registration(code, kinds), chain=chain
        )
        answer = checked(posted, 201, "registration-response.xsd", "registrationRequest")
        assert answer.findtext("status") == "PENDING"
        location = posted.headers["location"]
        await directory.office.approve(location.rpartition("/")[2], by="alice")
        asked = await directory.request("GET", location, chain=chain)
        answer = checked(asked, 200, "registration-response.xsd", "registrationRequest")
        assert answer.findtext("status") == "APPROVED"
        issued = (await directory.entry(code)).certificates
        components[code] = TestComponent(
            ComponentCode(code), issued, {}, directory.pki.integrated_ca
        )
    e1, b1 = components["E1"], components["B1"]
    pushed = await directory.request(
        "PUT", "/api/v1/endpoints/E1", entry(e1, f"<paths>{PATH}</paths>"), chain=e1.chain
    )
    stored = checked(pushed, 200, "components.xsd", "endpoint")
    # What the directory owns is there, though the old client did not send it.
    assert stored.findtext("componentDirectory") == "CD-1"
    assert stored.findtext("creationTimestamp")
    assert stored.findtext("paths/path/path") == "INDIRECT:B1"
    pushed = await directory.request(
        "PUT", "/api/v1/brokers/B1", broker_entry(b1, "<restriction/>"), chain=b1.chain
    )
    checked(pushed, 200, "components.xsd", "broker")
    asked = await directory.request("GET", "/api/v1/components", query(), chain=e1.chain)
    answer = checked(asked, 200, "components.xsd", "components")
    assert len(answer.findall("components/*")) == 3
    refused = await directory.request("GET", "/api/v1/nothing", chain=e1.chain)
    checked(refused, 404, "error.xsd", "error")
