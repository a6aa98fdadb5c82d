"""The settings of a component-directory that its console changes."""

from __future__ import annotations

from gridpost.assembly.settings_file import CONTACT, DURATION, Groups
from gridpost.console.configuring import Setting

SETTINGS: Groups = (
    CONTACT,
    (
        "Registration",
        (
            Setting(
                "registration.certificate_validity", "New certificates are valid for", DURATION
            ),
            Setting("registration.installation_validity", "Invitations are valid for", DURATION),
        ),
    ),
    (
        "Synchronisation",
        (
            Setting("synchronisation.cycle", "Other directories are asked every", DURATION),
            Setting("synchronisation.ttl", "What they told counts for", DURATION),
        ),
    ),
    (
        "Certificates and journal",
        (
            Setting("certificates.expiry_warning", "Warning before expiry", DURATION),
            Setting(
                "certificates.published_after_expiry", "Expired ones stay published for", DURATION
            ),
            Setting("journal.retention", "Journal", DURATION),
            Setting("journal.refused_connections", "Refused connections written down", "a minute"),
        ),
    ),
)
