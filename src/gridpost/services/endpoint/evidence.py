"""The proof set of a message, from what was archived when it was delivered (503 cl. 4.5.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

from gridpost.core.certificate import Certificate, CertificateKind, of_kind
from gridpost.core.component import Component
from gridpost.core.delivery import Side
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message import SIGNATURE, InternalMessage, InternalType
from gridpost.core.ports import UnitOfWork
from gridpost.core.proof_set import ProofSet
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Answer, Directory, Grant, home_directory
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.tracking import processor_value
from gridpost.wire import party_paper
from gridpost.wire.directory import encode_components
from gridpost.wire.party_paper import PartyPaper
from gridpost.wire.proof_file import DirectoryEntry, ProofFile

SENDER, RECIPIENT = "sender", "recipient"
_REMEMBERED = 1000


class Archive:
    """What the directory says of both parties, as papers; made anew when it says something else."""

    def __init__(self, context: EndpointContext) -> None:
        self._context = context
        self._of: Directory | None = None
        self._made: dict[str, bytes] = {}

    def papers(self, sender: ComponentCode, recipient: ComponentCode) -> Mapping[str, bytes]:
        """To be kept in the transaction that stores what they are evidence for."""
        return {SENDER: self._paper(sender), RECIPIENT: self._paper(recipient)}

    def party(self, code: ComponentCode) -> PartyPaper:
        now, directory = self._context.clock.now(), self._context.directory()
        component = directory.find(code, now)
        home = None if component is None else home_directory(directory, component, now)
        certificates = self._context.signing_certificates(code, now)
        if code == self._context.code:
            # Our own are known here even when the directory no longer publishes them.
            certificates += [s.certificate for s in self._context.keyring.signers()]
        issuers = () if home is None else of_kind(home.certificates, CertificateKind.INTEGRATED_CA)
        return PartyPaper(
            code,
            tuple({c.certificate_id: c for c in certificates}.values()),
            tuple(c.der for c in issuers),
            tuple(_entries(directory, component, home)),
        )

    def _paper(self, code: ComponentCode) -> bytes:
        directory = self._context.directory()
        if directory is not self._of or len(self._made) > _REMEMBERED:
            self._of, self._made = directory, {}
        made = self._made.get(code)
        if made is None:
            made = self._made[code] = party_paper.encode(self.party(code))
        return made


class Evidence:
    def __init__(
        self, context: EndpointContext, roots: Callable[[], Sequence[bytes]] = tuple
    ) -> None:
        self._context = context
        self._roots = roots
        self._archive = Archive(context)

    async def export(self, side: Side, message_id: str) -> ProofFile:
        """With everything that a verifier without this directory needs."""
        proof, parties = await self._proof(side, message_id)
        entries = {entry.code: entry for party in parties for entry in party.entries}
        return ProofFile(proof, tuple(self._roots()), tuple(entries.values()))

    async def _proof(
        self, side: Side, message_id: str
    ) -> tuple[ProofSet, tuple[PartyPaper, PartyPaper]]:
        message, acknowledgements, papers = await self._collect(side, message_id)
        metadata = message.metadata
        sender = self._party(SENDER, metadata.sender_code, papers)
        recipient = self._party(RECIPIENT, metadata.receiver_code, papers)
        signed_by = _certificate(sender, message)
        if side is Side.RECEIVED:
            return ProofSet(message, signed_by, issuers=sender.issuers), (sender, recipient)
        by_kind = {a.metadata.internal_type: a for a in acknowledgements}
        delivery = by_kind.get(InternalType.DELIVERY_ACKNOWLEDGEMENT)
        proof = ProofSet(
            message,
            signed_by,
            delivery,
            None if delivery is None else _certificate(recipient, delivery),
            by_kind.get(InternalType.RECEIVE_ACKNOWLEDGEMENT),
            tuple(dict.fromkeys((*sender.issuers, *recipient.issuers))),
        )
        return proof, (sender, recipient)

    def _party(self, name: str, code: ComponentCode, papers: Mapping[str, bytes]) -> PartyPaper:
        """As it was; as it is now where nothing was archived, because nothing was delivered."""
        kept = papers.get(name)
        return self._archive.party(code) if kept is None else party_paper.decode(kept)

    async def _collect(
        self, side: Side, message_id: str
    ) -> tuple[InternalMessage, list[InternalMessage], Mapping[str, bytes]]:
        def collect(
            work: UnitOfWork,
        ) -> tuple[InternalMessage, list[InternalMessage], Mapping[str, bytes]]:
            entry = work.box.find(side, message_id)
            content = work.box.content(side, message_id)
            if entry is None or content is None:
                raise Refusal(
                    Rule.MESSAGE_UNKNOWN,
                    f"no message {message_id} with its document is stored here",
                    "retention may have removed it",
                )
            return (
                InternalMessage(entry.metadata, content),
                list(work.box.acknowledgements(message_id) if side is Side.SENT else ()),
                work.controls.papers(side, message_id),
            )

        return await self._context.store.read(collect)


def _certificate(party: PartyPaper, signed: InternalMessage) -> Certificate | None:
    named = processor_value(signed.metadata, SIGNATURE, "Certificate ID")
    return next((c for c in party.certificates if c.certificate_id == named), None)


def _entries(directory: Directory, *components: Component | None) -> Iterator[DirectoryEntry]:
    """With the content that they were part of."""
    for found in components:
        if found is None:
            continue
        subsystem = directory.subsystems.get(found.component_directory)
        content_id = "" if subsystem is None else subsystem.content_id
        grant = Grant(found.component_directory, content_id, timedelta(0))
        yield DirectoryEntry(
            found.code,
            found.component_directory,
            content_id,
            # As a directory would answer, so that it can be compared with one.
            encode_components(Answer((grant,), (found,))),
        )
