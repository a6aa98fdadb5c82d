"""The node-list file (MADES 1.1 cl. 5.4): which nodes there are and under which URLs they are reached."""

from __future__ import annotations

from urllib.parse import urlsplit

from gridpost.core.identifiers import clip, component_code
from gridpost.core.node import RemoteNode
from gridpost.core.refusal import Refusal, Rule

MAX_SIZE = 1024 * 1024


def parse_node_list(data: bytes, own_code: str) -> tuple[RemoteNode, ...]:
    """All or nothing: any mistake refuses the whole file. What it says of ourselves is left out."""
    if len(data) > MAX_SIZE:
        raise _refused(0, f"the file is larger than {MAX_SIZE} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise _refused(0, "the file is not UTF-8") from None
    nodes: dict[str, RemoteNode] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        code, *urls = line.split(" ")
        try:
            component_code(code)
        except Refusal as refusal:
            raise _refused(number, refusal.message) from None
        if not 1 <= len(urls) <= 2:
            raise _refused(number, "a record is a component ID, a URL and at most one more URL")
        for url in urls:
            _check_url(number, url)
        if code in nodes:
            raise _refused(number, f"{code} stands in the file twice")
        nodes[code] = RemoteNode(code, tuple(urls))
    nodes.pop(own_code, None)
    return tuple(nodes.values())


def _check_url(number: int, url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isprintable():
        raise _refused(number, f"'{clip(url)}' is no https URL")


def _refused(number: int, reason: str) -> Refusal:
    where = f"line {number} of the node-list file: " if number else "the node-list file: "
    return Refusal(Rule.INCONSISTENT_CONFIGURATION, where + reason, "nothing was changed")
