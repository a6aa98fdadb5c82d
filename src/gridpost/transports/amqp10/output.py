"""What a connection writes, and when: once at the end of a turn of the event loop.

Whoever changes proton's state calls `touch`. A thousand settlements of one turn become a few frames
and one write. Nothing is taken from proton while the socket is behind, so a slow reader holds back
its own links and nobody's memory.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gridpost.transports.amqp10.engine import (
    BUFFERS,
    END_OF_STREAM,
    OUTPUT,
    Engine,
    lib,
)

if TYPE_CHECKING:
    from gridpost.transports.amqp10.connection import AmqpConnection
    from gridpost.transports.amqp10.receiver import Receiver
    from gridpost.transports.amqp10.sender import Sender
    from gridpost.transports.amqp10.stream import Stream

_ROUNDS: Final = 4
"""How often in one turn links that waited for room may begin; other connections want theirs."""


class Output:
    """The output of one connection, and the links that wait for it."""

    __slots__ = (
        "_connection", "_loop", "_touched", "_unanswered", "portioned", "starved", "thirsty",
        "waiting",
    )  # fmt: skip

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._touched = False
        self._unanswered = 0
        self.waiting = 0
        """Octets of messages that proton was given and may not have written yet."""
        self.thirsty: set[Receiver] = set()
        """Links that may be due for more credit."""
        self.portioned: set[Sender] = set()
        """Links with a message of which proton has not been given everything."""
        self.starved: set[Sender] = set()
        """Links that would send but for what waits to be written."""

    def touch(self) -> None:
        if not self._touched:
            self._touched = True
            self._loop.call_soon(self.flush)

    @property
    def full(self) -> bool:
        connection = self._connection
        stream = connection.stream
        return (
            self.waiting >= connection.limits.write_high_water
            or stream is None
            or not stream.writable
        )

    def owes_answer(self) -> None:
        """The peer ended a link or a session; proton keeps it until our answer is written.

        A peer that makes more and more of them, and does not read, is cut.
        """
        self._unanswered += 1
        if self._unanswered > 4 * self._connection.limits.max_links:
            self._connection.abort()

    def flush(self) -> None:
        self._touched = False
        connection = self._connection
        engine, stream = connection.engine, connection.stream
        if engine is None or stream is None:
            return
        try:
            connection.before_output()
            for thirsty in self.thirsty:
                thirsty.grant()
            self.thirsty.clear()
            got = self._write(connection, engine, stream)
            connection.dispatch()
            if got == END_OF_STREAM:
                if connection.peer_done:
                    stream.close()
            elif self.starved or self.waiting:
                self._count(connection)
        except Exception as error:
            connection.fail(error)

    def _write(self, connection: AmqpConnection, engine: Engine, stream: Stream) -> int:
        """As far as the socket takes it; 0 or END_OF_STREAM when proton has no more to say."""
        transport, output, view = engine.transport, BUFFERS.output, BUFFERS.output_view
        peek, pop = lib.pn_transport_peek, lib.pn_transport_pop
        filled, got, rounds = 0, 1, 0
        while stream.writable:
            got = peek(transport, output + filled, OUTPUT - filled)
            if got > 0:
                pop(transport, got)
                filled += got
                if filled == OUTPUT:
                    stream.write(view)
                    filled = 0
            elif not self._send_portions():
                self._unanswered = 0
                rounds += 1
                if got == END_OF_STREAM or not self.starved or rounds == _ROUNDS:
                    break
                # The next message begins where the last one ends: a write, and a read of the
                # peer's, less for each.
                self._count(connection)
        if filled:
            stream.write(view[:filled])
        return got

    def _send_portions(self) -> bool:
        """True: some link gave proton more to write."""
        given = [link.send_portion() for link in tuple(self.portioned)]
        return True in given

    def _count(self, connection: AmqpConnection) -> None:
        # What the windows of the peer's sessions do not let pass yet.
        self.waiting = sum(map(lib.pn_session_outgoing_bytes, connection.sessions))
        if self.starved and not self.full:
            links, self.starved = self.starved, set()
            for link in links:
                link.notify()
