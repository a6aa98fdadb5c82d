"""Which journal rows a change of directory entries makes: new, changed and gone, never what stayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from gridpost.core.certificate import Certificate
from gridpost.core.component import Component
from gridpost.core.journal import CertificateRow, EntryRow, JournalRow, Standing


def rows(
    before: Iterable[Component],
    after: Iterable[Component],
    at: datetime,
    *,
    gone: Standing = Standing.GONE,
) -> Iterator[JournalRow]:
    """`gone` says what it means that an entry or a certificate is no longer there."""
    known = {component.code: component for component in before}
    now = {component.code: component for component in after}
    for code, component in now.items():
        old = known.get(code)
        row = _component(component, Standing.PUBLISHED, at)
        if old is None or _component(old, Standing.PUBLISHED, at) != row:
            yield row
        yield from _certificates(component, set(_ders(old)), Standing.PUBLISHED, at)
        if old is not None:
            yield from _certificates(old, set(_ders(component)), gone, at)
    for code, component in known.items():
        if code not in now:
            yield _component(component, gone, at)
            yield from _certificates(component, set(), gone, at)


def _ders(component: Component | None) -> Iterator[bytes]:
    if component is not None:
        yield from (certificate.der for certificate in component.certificates)


def _component(component: Component, standing: Standing, at: datetime) -> EntryRow:
    return EntryRow(
        at,
        component.code,
        component.type.value,
        component.component_directory,
        standing,
        component.contact.organization,
        " ".join(component.urls),
    )


def _certificates(
    component: Component, others: set[bytes], standing: Standing, at: datetime
) -> Iterator[CertificateRow]:
    for certificate in component.certificates:
        if certificate.der not in others:
            yield _certificate(component, certificate, standing, at)


def _certificate(
    component: Component, certificate: Certificate, standing: Standing, at: datetime
) -> CertificateRow:
    return CertificateRow(
        at,
        component.code,
        certificate.kind.value,
        certificate.certificate_id,
        standing,
        certificate.der,
        certificate.not_before,
        certificate.not_after,
        certificate.subject_code,
        component.component_directory,
    )
