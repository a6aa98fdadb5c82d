"""The sections of an endpoint's configuration for its applications: channels, users, bindings, checks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gridpost.assembly.broker_configuration import Count, Pattern
from gridpost.assembly.configuration import Period, Port
from gridpost.assembly.directory_configuration import is_loopback
from gridpost.core.channels import Channel, Receiving
from gridpost.core.checks import Stage, WhenDown
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.amqp_channel import AmqpChannelSettings
from gridpost.services.endpoint.users import User
from gridpost.services.operations.passwords import check_hash

MIB = 1024 * 1024


def _hash(text: str) -> str:
    try:
        check_hash(text)
    except Refusal as refusal:
        raise ValueError(refusal.message) from None
    return text


def _icap(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("icap", "icaps") or not parts.hostname:
        raise ValueError("write icap://host:port/service, or icaps:// for TLS")
    if parts.scheme == "icap" and not is_loopback(parts.hostname):
        raise ValueError("documents leave this machine by TLS only: write icaps://")
    return url


QueueName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Listening(_Section):
    """A port for applications; in clear on loopback only."""

    host: str = "127.0.0.1"
    certificate: Path | None = None
    key: Path | None = None
    client_roots: tuple[Path, ...] = ()

    @model_validator(mode="after")
    def _in_clear_on_loopback(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together")
        if self.certificate is None and not is_loopback(self.host):
            raise ValueError("without certificate and key the host must be a loopback address")
        return self

    def within(self, folder: Path) -> Self:
        """With relative paths counted from there."""
        return self.model_copy(
            update={
                "certificate": self.certificate and folder / self.certificate,
                "key": self.key and folder / self.key,
                "client_roots": tuple(folder / root for root in self.client_roots),
            }
        )


class ApiSection(_Listening):
    """Where business applications send and pull: the JSON API and SOAP."""

    port: Port = 8480
    client_roots: tuple[Path, ...] = ()
    """CAs whose client certificates are looked at; which user one is, stands under users."""
    channels: Annotated[tuple[Literal[Channel.JSON, Channel.SOAP], ...], Field(min_length=1)] = (
        Channel.JSON,
        Channel.SOAP,
    )
    url: str = ""
    """What the WSDL says of where the service is; empty: where it was asked for."""
    body_timeout: Period = timedelta(minutes=5)
    """How long a client may take to hand in one request."""
    soap_requests_per_user: Count = 64
    max_envelope: Count = MIB
    """Of a SOAP request, without its document."""

    @model_validator(mode="after")
    def _guarded(self) -> ApiSection:
        if self.certificate is None and self.client_roots:
            raise ValueError("client certificates need HTTPS: give certificate and key")
        return self


class AmqpQueuesSection(_Section):
    outbox: QueueName = "ecp.endpoint.outbox"
    reply: QueueName = "ecp.endpoint.outbox.reply"
    inbox: QueueName = "ecp.endpoint.inbox"
    event: QueueName = "ecp.endpoint.send.event"

    @model_validator(mode="after")
    def _differ(self) -> AmqpQueuesSection:
        names = [self.outbox, self.reply, self.inbox, self.event]
        if len(set(names)) < len(names):
            raise ValueError("the four queues need four names")
        return self


class AmqpSection(_Listening):
    """The AMQP channel for business applications."""

    port: Port = 5672
    mechanism: Literal["PLAIN", "EXTERNAL"] = "PLAIN"
    client_roots: tuple[Path, ...] = ()
    """EXTERNAL: CAs whose client certificates are accepted; whose one is, stands under users."""
    queues: AmqpQueuesSection = AmqpQueuesSection()
    replies: bool = True
    events: bool = True
    keep: Period = timedelta(days=7)
    credit: Count = 500
    max_unsettled: Count = 2_000
    max_connections_per_user: Count = 32

    @model_validator(mode="after")
    def _guarded(self) -> AmqpSection:
        if self.mechanism == "EXTERNAL" and (self.certificate is None or not self.client_roots):
            raise ValueError("EXTERNAL needs certificate, key and client_roots")
        if self.mechanism == "PLAIN" and self.client_roots:
            raise ValueError("client_roots are for the mechanism EXTERNAL")
        return self

    def settings(self) -> AmqpChannelSettings:
        names = self.queues
        return AmqpChannelSettings(
            names.outbox,
            names.reply,
            names.inbox,
            names.event,
            self.replies,
            self.events,
            self.keep,
        )


class InSection(_Section):
    """Where received documents go, and the extension of those whose sender gave none."""

    folder: Path
    extension: Annotated[str, Field(pattern="^[A-Za-z0-9-]*$")] = ""

    @model_validator(mode="after")
    def _is_read(self) -> InSection:
        if self.extension in ("tmp", "TMP"):
            raise ValueError("no application reads files with the extension tmp")
        return self


class FoldersSection(_Section):
    """503 cl. 11.2.4: File System Shared Folders."""

    out: Path
    out_error: Path
    out_log: Path
    user: str = "folder"
    """A user of this configuration with the channel folder: its rights count for OUT."""
    default: InSection | None = Field(default=None, alias="in")
    types: dict[Pattern, InSection] = Field(default_factory=dict)
    watch: Literal["inotify", "polling"] = "inotify"
    poll: Period = timedelta(seconds=1)
    rescan: Period = timedelta(seconds=60)
    retry: Period = timedelta(seconds=15)
    at_once: Count = 16
    file_mode: Annotated[str, Field(pattern="^0?[0-7]{3}$")] = "0640"

    @model_validator(mode="after")
    def _apart(self) -> FoldersSection:
        # m11 cl. 5.2.3.2: each kind of file has a folder of its own.
        ins = {section.folder for section in self.ins()}
        kinds = [{self.out}, {self.out_error}, {self.out_log}, ins]
        if len(set().union(*kinds)) < sum(len(kind) for kind in kinds):
            raise ValueError("OUT, OUT_ERROR, OUT_LOG and IN are different folders")
        return self

    def ins(self) -> list[InSection]:
        return [*self.types.values(), *([self.default] if self.default else [])]

    def folders(self) -> list[Path]:
        return [self.out, self.out_error, self.out_log, *(s.folder for s in self.ins())]

    def within(self, folder: Path) -> FoldersSection:
        """With relative paths counted from there."""

        def moved(section: InSection) -> InSection:
            return section.model_copy(update={"folder": folder / section.folder})

        return self.model_copy(
            update={
                "out": folder / self.out,
                "out_error": folder / self.out_error,
                "out_log": folder / self.out_log,
                "default": self.default and moved(self.default),
                "types": {pattern: moved(section) for pattern, section in self.types.items()},
            }
        )


class UserSection(_Section):
    password: Annotated[str, AfterValidator(_hash)] | None = None
    certificate: Annotated[str, Field(pattern="^[0-9A-Fa-f:]{64,95}$")] | None = None
    send: tuple[Pattern, ...] = ("*",)
    receive: tuple[Pattern, ...] = ("*",)
    channels: tuple[Channel, ...] = tuple(Channel)
    operator: bool = False
    """Through the JSON API: may send again, cancel, pause, release and maintain."""

    @model_validator(mode="after")
    def _shows_something(self) -> UserSection:
        # A folder knows its user by the rights of the file system.
        doors = set(self.channels) - {Channel.FOLDER}
        if doors and self.password is None and self.certificate is None:
            raise ValueError("a user needs a password or a certificate")
        return self

    def user(self, name: str) -> User:
        return User(
            name,
            self.password or "",
            self.certificate or "",
            patterns_of(self.send),
            patterns_of(self.receive),
            frozenset(self.channels),
            self.operator,
        )


class BindingSection(_Section):
    """Through which channel, and to which users, received documents of these types go."""

    message_type: Pattern
    channel: Receiving = Receiving.PULL
    users: tuple[str, ...] = ()


class CheckSection(_Section):
    """A check of documents by somebody else's program."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    message_types: Annotated[tuple[Pattern, ...], Field(min_length=1)] = ("*",)
    before: Annotated[tuple[Stage, ...], Field(min_length=1)] = tuple(Stage)
    command: tuple[str, ...] = ()
    icap: Annotated[str, AfterValidator(_icap)] | None = None
    preview: Annotated[int, Field(ge=0, le=MIB)] = 1024
    ca: Path | None = None
    """CA of an icaps server (PEM) in place of those of the system."""
    timeout: Period = timedelta(seconds=30)
    at_once: Count = 4
    when_down: WhenDown = WhenDown.REFUSE

    @model_validator(mode="after")
    def _one_of_two(self) -> CheckSection:
        if bool(self.command) == (self.icap is not None):
            raise ValueError("a check is either a command or an icap server")
        return self


def patterns_of(texts: tuple[str, ...]) -> tuple[MessageTypePattern, ...]:
    return tuple(MessageTypePattern(text) for text in texts)
