"""Commands of operators: they ask the running service through its operations listener."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gridpost.cli.capacity_output import Config, Json, instant, tell
from gridpost.cli.output import show

app = typer.Typer()

By = Annotated[str, typer.Option("--by", help="Who does it, for the ledger.")]
Interconnector = Annotated[
    str, typer.Option("--interconnector", help="Only this one, as area1/area2.")
]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the audit log.")]


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(help="Capacity as CSV or as a Capacity_MarketDocument.")],
    config: Config,
    by: By = "",
    as_json: Json = False,
) -> None:
    """Publish capacity; open days are broadcast in full."""
    tell(_ask(config, "/publish", {"file": _read(file), "by": by or _me()}), as_json)


@app.command()
def adjust(
    file: Annotated[Path, typer.Argument(help="Capacity as CSV or as a Capacity_MarketDocument.")],
    config: Config,
    by: By = "",
    as_json: Json = False,
) -> None:
    """Change published capacity; what differs is broadcast."""
    tell(_ask(config, "/adjust", {"file": _read(file), "by": by or _me()}), as_json)


@app.command()
def halt(
    border: Annotated[str, typer.Argument(help="Short name of the border.")],
    config: Config,
    interconnector: Interconnector = "",
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
) -> None:
    """Stop allocation on a border, or on one interconnector of it."""
    form = {"border": border, "interconnector": interconnector, "by": by or _me()}
    form["reason"] = reason
    tell(_ask(config, "/halt", form), as_json)


@app.command()
def resume(
    border: Annotated[str, typer.Argument(help="Short name of the border.")],
    config: Config,
    interconnector: Interconnector = "",
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
) -> None:
    """Allow allocation again; everything is broadcast in full."""
    form = {"border": border, "interconnector": interconnector, "by": by or _me()}
    form["reason"] = reason
    tell(_ask(config, "/resume", form), as_json)


@app.command("on-behalf")
def on_behalf(
    config: Config,
    group: Annotated[str, typer.Option("--balancing-group", help="EIC of the group that gets it.")],
    out_area: Annotated[str, typer.Option("--out-area", help="EIC of the area it leaves.")],
    in_area: Annotated[str, typer.Option("--in-area", help="EIC of the area it enters.")],
    start: Annotated[
        list[str],
        typer.Option("--start", help="Start of a period, like 2026-03-01T12:00Z; repeat."),
    ],
    quantity: Annotated[int, typer.Option("--quantity", help="kW in each period.")],
    minutes: Annotated[int, typer.Option("--minutes", help="Length of a period.")] = 60,
    kind: Annotated[str, typer.Option("--type", help="ACE, AON or IOC.")] = "AON",
    event: Annotated[
        str, typer.Option("--event", help="ON_BEHALF, or ALLOCATION for another market system.")
    ] = "ON_BEHALF",
    by: By = "",
    as_json: Json = False,
) -> None:
    """Allocate capacity for a balancing group. Exit code 1 when nothing was allocated."""
    from datetime import timedelta

    length = timedelta(minutes=minutes)
    items = [
        {
            "out_area": out_area,
            "in_area": in_area,
            "period_start": begin.isoformat(),
            "period_end": (begin + length).isoformat(),
            "quantity": quantity,
        }
        for begin in map(instant, start)
    ]
    form = {"balancing_group": group, "type": kind, "event": event, "items": items}
    done = _ask(config, "/allocate", {**form, "by": by or _me()})
    columns = ["client_id", "success", "allocation_id", "confirmed", "message"]
    show(done, columns, done["items"], as_json)
    if not any(item["success"] for item in done["items"]):
        raise typer.Exit(1)


@app.command()
def events(
    config: Config,
    count: Annotated[int, typer.Option("--count", min=1, max=10_000, help="How many.")] = 50,
    before: Annotated[int, typer.Option("--before", help="Only lines before this number.")] = 0,
    as_json: Json = False,
) -> None:
    """Show the lines of the ledger, newest first: the order in which everything happened."""
    rows = _ask(config, "/events", {"limit": count, "before": before})
    columns = [
        "sequence", "commit", "at", "kind", "event", "out_area", "in_area", "period_start",
        "quantity", "balancing_group", "actor",
    ]  # fmt: skip
    show({"events": rows}, columns, rows, as_json)


def _ask(config: Path, path: str, body: object) -> Any:
    import httpx

    from gridpost.assembly.capacity_configuration import read_capacity_configuration
    from gridpost.assembly.operations_token import bearer
    from gridpost.core.refusal import Refusal, Rule

    configuration = read_capacity_configuration(config)
    section = configuration.operations
    url = f"http://{section.host}:{section.port}{path}"
    try:
        with httpx.Client(timeout=60, trust_env=False) as client:
            response = client.post(url, json=body, headers=bearer(configuration.home))
            answer = response.json()
            if response.status_code in (401, 409):
                refused = answer["refused"]
                raise Refusal(Rule[refused["rule"]], refused["message"], refused["id"])
            response.raise_for_status()
            return answer
    except httpx.HTTPError as error:
        raise Refusal(
            Rule.UNREACHABLE, f"the capacity service does not answer at {url}", str(error)
        ) from None


def _read(file: Path) -> str:
    from gridpost.core.refusal import Refusal, Rule

    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(Rule.USAGE, f"{file} cannot be read: {error}") from None


def _me() -> str:
    from getpass import getuser

    return getuser()
