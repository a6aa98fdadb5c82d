"""Who may use a console: roles, the people that the configuration names, and what a wrong guess costs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gridpost.core.refusal import Refusal, Rule
from gridpost.services.operations.passwords import PasswordHash, hash_password

_REMEMBERED = 10_000
"""Names and addresses of which wrong guesses are remembered; the oldest are forgotten first."""


class Role(StrEnum):
    """Each may do what the ones before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"

    def may(self, needed: Role) -> bool:
        return _RANK[self] >= _RANK[needed]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Person:
    role: Role
    password: str
    """scrypt hash."""


class People:
    """The names in the configuration; a changed configuration counts at once."""

    def __init__(self, people: Mapping[str, Person]) -> None:
        # A name that nobody has costs as much time as a wrong password.
        self._nobody = PasswordHash(hash_password("nobody"))
        self._people: dict[str, Person] = {}
        self._hashes: dict[str, PasswordHash] = {}
        self.replace(people)

    def replace(self, people: Mapping[str, Person]) -> None:
        known = self._people
        self._hashes = {
            name: self._hashes[name]
            if name in known and known[name].password == person.password
            else PasswordHash(person.password)
            for name, person in people.items()
        }
        self._people = dict(people)

    def role(self, name: str) -> Role | None:
        person = self._people.get(name)
        return None if person is None else person.role

    def same_password(self, name: str, mark: str) -> bool:
        """Has the password not been changed since `mark` was taken?"""
        person = self._people.get(name)
        return person is not None and person.password == mark

    def mark(self, name: str) -> str:
        return self._people[name].password

    async def fits(self, name: str, password: str) -> bool:
        known = self._hashes.get(name)
        if known is None:
            await self._nobody.fits(password + ".")
            return False
        return await known.fits(password)


@dataclass(slots=True)
class _Failures:
    count: int
    last: datetime


class LockOut:
    """After too many wrong guesses neither the name nor the address is listened to for a while."""

    def __init__(self, attempts: int, lasting: timedelta) -> None:
        self.attempts = attempts
        self.lasting = lasting
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def check(self, now: datetime, name: str, address: str) -> None:
        for key, allowed in self._keys(name, address):
            found = self._failures.get(key)
            if found and found.count >= allowed and now - found.last < self.lasting:
                raise Refusal(
                    Rule.ACCESS_DENIED,
                    "too many wrong attempts: locked until "
                    f"{found.last + self.lasting:%Y-%m-%d %H:%M:%S} UTC",
                )

    def failed(self, now: datetime, name: str, address: str) -> bool:
        """Did this attempt lock something?"""
        locked = False
        for key, allowed in self._keys(name, address):
            found = self._failures.pop(key, None)
            if found is None or now - found.last >= self.lasting:
                found = _Failures(0, now)
            found.count += 1
            found.last = now
            self._failures[key] = found
            locked = locked or found.count == allowed
        while len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)
        return locked

    def succeeded(self, name: str) -> None:
        self._failures.pop(f"name {name}", None)

    def _keys(self, name: str, address: str) -> tuple[tuple[str, int], ...]:
        # Many people may sit behind one address.
        return (f"name {name}", self.attempts), (f"address {address}", self.attempts * 10)
