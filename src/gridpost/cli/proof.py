"""`gridpost proof`: evidence of one message as a file, and its check without any network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gridpost.cli import application as shared
from gridpost.cli.output import say

if TYPE_CHECKING:
    from gridpost.client import Endpoint

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Evidence of one message, checked offline."
)


@app.command()
@shared.connected
def export(
    endpoint: Endpoint,
    message_id: shared.MessageId,
    out: Annotated[Path, typer.Option("--out", help="Where the proof file goes.")],
    side: shared.SideOption = "sent",
    as_json: shared.Json = False,
) -> None:
    """Write document, signatures, certificates and directory entries into one file."""
    data = endpoint.proof(message_id, side)
    out.write_bytes(data)
    say({"file": str(out), "bytes": len(data)}, f"{out} written.", as_json)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="A proof file.")],
    root: Annotated[
        list[Path] | None, typer.Option("--root", help="ROOT CA that you trust (PEM); repeatable.")
    ] = None,
    trust: Annotated[
        list[Path] | None,
        typer.Option("--trust", help="EXTERNAL CA that you trust (PEM); repeatable."),
    ] = None,
    as_json: shared.Json = False,
) -> None:
    """Say what is proven, what is claimed by whom, and what nobody signed."""
    from gridpost.core.refusal import Refusal, Rule
    from gridpost.wire.proof_file import decode
    from gridpost.wire.seal.proof import verify_proof

    try:
        proof = decode(file.read_bytes()).proof
    except OSError as error:
        raise Refusal(Rule.USAGE, f"{file} cannot be read: {error.strerror}") from None
    verdict = verify_proof(proof, _certificates(root), _certificates(trust))
    findings = (verdict.origin, verdict.receipt)
    received = verdict.received_claimed_at
    result: dict[str, Any] = {
        "messageID": proof.message.metadata.message_id,
        "digest": verdict.digest.hex(),
        **{
            finding.fact.name.lower(): {
                "standing": finding.standing.value,
                "party": finding.party,
                "signer": finding.signer,
                "claimed_at": None if finding.claimed_at is None else str(finding.claimed_at),
                "reason": finding.reason,
            }
            for finding in findings
        },
        "received_claimed_at": None if received is None else str(received),
        "notes": list(verdict.notes),
    }
    if as_json:
        typer.echo(json.dumps(result))
    else:
        # Whole: this is what somebody compares with the document in hand.
        typer.echo(f"message {result['messageID']}, SHA-512 {result['digest']}")
        for finding in findings:
            reason = f" ({finding.reason})" if finding.reason else ""
            typer.echo(f"{finding.fact.value}: {finding.standing.value}{reason}")
            if finding.claimed_at is not None:
                typer.echo(f"  {finding.party} claims the time {finding.claimed_at}")
        if received is not None:
            typer.echo(f"unsigned: {findings[1].party} says an application took it at {received}")
        for note in verdict.notes:
            typer.echo(f"note: {note}")
    if not verdict.origin.proven:
        raise typer.Exit(1)


def _certificates(files: list[Path] | None) -> list[bytes]:
    from gridpost.core.refusal import Refusal, Rule
    from gridpost.wire.x509 import from_pem

    found: list[bytes] = []
    for file in files or []:
        try:
            found += from_pem(file.read_bytes())
        except OSError as error:
            raise Refusal(Rule.USAGE, f"{file} cannot be read: {error.strerror}") from None
    return found
