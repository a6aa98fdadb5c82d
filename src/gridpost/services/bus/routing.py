"""Where a request may be served elsewhere: rules over its header, and the targets that they name.

Rules look at the header alone, so no payload is unpacked for them (61968-100 cl. 5.3.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lxml import etree

from gridpost.core.bus import Instance
from gridpost.core.envelope import NAMESPACE, RequestMessage
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.settings import ANY
from gridpost.wire.envelope import encode_unchecked
from gridpost.wire.envelope.transform import Treatment

MADES = "mades:"
_NAMES = {"m": NAMESPACE}


@dataclass(frozen=True, slots=True)
class Target:
    address: str
    """`queue:NAME`, a URL of a generic web service, or `mades:CODE` of another party."""
    instance: str = ""
    """The code of the bus that serves it, if its state is to count."""

    @property
    def web(self) -> bool:
        return self.address.startswith(("http://", "https://"))

    @property
    def party(self) -> str:
        """The code of another party; empty: it is none."""
        return self.address.removeprefix(MADES) if self.address.startswith(MADES) else ""


class HeaderRule:
    """An XPath over the header, `m:Source = 'EMS'`; it must be true."""

    def __init__(self, text: str) -> None:
        try:
            self._path = etree.XPath(f"boolean({text})", namespaces=_NAMES)
        except etree.XPathSyntaxError as error:
            raise Refusal(Rule.USAGE, f"'{text}' is no XPath: {error}") from None
        try:
            # Functions and prefixes that nobody knows show only when it is evaluated.
            self._path(etree.Element(f"{{{NAMESPACE}}}Header"))
        except etree.XPathError as error:
            raise Refusal(Rule.USAGE, f"'{text}' cannot be evaluated: {error}") from None

    def holds(self, message: RequestMessage) -> bool:
        bare = encode_unchecked(RequestMessage(message.header))
        header = etree.fromstring(bare).find(f"{{{NAMESPACE}}}Header")
        return bool(header is not None and self._path(header))


@dataclass(frozen=True, slots=True)
class RouteRule:
    verb: str
    noun: str
    targets: tuple[Target, ...]
    when: HeaderRule | None = None
    treatment: Treatment = field(default_factory=Treatment)

    @property
    def by_instance(self) -> bool:
        return any(target.instance for target in self.targets)

    def meets(self, message: RequestMessage) -> bool:
        header = message.header
        return (
            self.verb in (ANY, header.verb)
            and self.noun in (ANY, header.noun)
            and (self.when is None or self.when.holds(message))
        )


def chosen(rule: RouteRule, instances: Iterable[Instance]) -> Target:
    """The first target that lives; of several that live, the one with the least to do."""
    if not rule.by_instance:
        return rule.targets[0]
    load: dict[str, int] = {}
    for instance in instances:
        code = instance.name.partition("@")[0]
        load[code] = min(load.get(code, instance.load), instance.load)
    living = [t for t in rule.targets if not t.instance or t.instance in load]
    if not living:
        raise Refusal(Rule.NOT_HANDLED, "no instance that serves this is alive")
    return min(living, key=lambda target: load.get(target.instance, 0))
