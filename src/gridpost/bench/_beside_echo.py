"""A service beside its echo: both are asked in turns, and this is what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

from gridpost.bench._asking import Ask, at_rate, closed_loop


@dataclass
class _Rounds:
    """What rounds on one side found: requests per second, and seconds."""

    rates: list[float] = field(default_factory=list)
    middles: list[float] = field(default_factory=list)
    tails: list[float] = field(default_factory=list)


class BesideEcho:
    """The first round has to be the echo's: both are paced at a share of the rate it found."""

    def __init__(self, share: float, warm_up: float, seconds: float) -> None:
        self._share, self._warm_up, self._seconds = share, warm_up, seconds
        self._echo, self._service = _Rounds(), _Rounds()
        self._paced = 0.0

    async def ask_echo(self, clients: Sequence[Ask]) -> None:
        await self._ask(self._echo, clients)

    async def ask_service(self, clients: Sequence[Ask]) -> None:
        await self._ask(self._service, clients)

    async def _ask(self, rounds: _Rounds, clients: Sequence[Ask]) -> None:
        rounds.rates.append(await closed_loop(clients, self._warm_up, self._seconds))
        self._paced = self._paced or self._echo.rates[0] * self._share
        times = await at_rate(clients, self._paced, self._seconds)
        rounds.middles.append(median(times))
        rounds.tails.append(quantiles(times, n=100)[98])

    def figures(self) -> dict[str, float]:
        echo, service = self._echo, self._service
        return {
            "echo_requests_per_s": median(echo.rates),
            "requests_per_s": median(service.rates),
            "paced_requests_per_s": self._paced,
            "echo_p50_ms": median(echo.middles) * 1000,
            "p50_ms": median(service.middles) * 1000,
            "echo_p99_ms": median(echo.tails) * 1000,
            "p99_ms": median(service.tails) * 1000,
        }

    def ratios(self) -> dict[str, float]:
        echo, service = self._echo, self._service
        return {
            "requests_vs_echo": median(service.rates) / median(echo.rates),
            "p99_vs_echo": median(service.tails) / median(echo.tails),
        }
