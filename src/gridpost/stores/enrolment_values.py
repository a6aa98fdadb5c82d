"""How an enrolment stands in a database: its state apart, because an operator may ask for it."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from gridpost.core.enrolment import Enrolment, EnrolmentState, Home
from gridpost.core.identifiers import ComponentCode
from gridpost.stores.directory_values import (
    read_certificates,
    read_request,
    write_certificates,
    write_request,
)
from gridpost.stores.values import read_json, write_json


def write_enrolment(enrolment: Enrolment) -> str:
    home = enrolment.home
    return write_json(
        {
            "home": {
                "code": home.code,
                "urls": list(home.urls),
                "certificates": write_certificates(home.certificates),
                "roots": [b64encode(root).decode("ascii") for root in home.roots],
            },
            "request": write_request(enrolment.request),
            "extension": enrolment.extension,
            "connect_with": write_certificates((enrolment.connect_with,)),
            "registration_id": enrolment.registration_id,
            "reason": enrolment.reason,
            "certificates": write_certificates(enrolment.certificates),
        }
    )


def read_enrolment(state: str, text: str) -> Enrolment:
    plain: dict[str, Any] = read_json(text)
    home = plain["home"]
    (connect_with,) = read_certificates(plain["connect_with"])
    return Enrolment(
        EnrolmentState(state),
        Home(
            ComponentCode(home["code"]),
            tuple(home["urls"]),
            read_certificates(home["certificates"]),
            tuple(b64decode(root) for root in home["roots"]),
        ),
        read_request(plain["request"]),
        plain["extension"],
        connect_with,
        plain["registration_id"],
        plain["reason"],
        read_certificates(plain["certificates"]),
    )
