"""Brings a store's tables up to date when it is opened. Two processes may try at once: the second one waits."""

from __future__ import annotations

import threading

from sqlalchemy import Connection, inspect, text

from kforge.errors import StoreError
from kforge.store.schema import HEAD, VERSION_TABLE

_ADVISORY_KEY = 0x6B666F726765
_one_at_a_time = threading.Lock()


def upgrade(connection: Connection) -> None:
    """Run the missing steps in the open write transaction; StoreError for a store newer than this program."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_KEY})
    revision = version(connection)
    if revision == HEAD:
        return
    # Most openings end above: Alembic's 0.2 s of imports are for the few that do not.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "kforge.store:migrations")
    known = {step.revision for step in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise StoreError(
            f"the store was written by a newer KForge (its layout is {revision}, this program knows up to {HEAD}): "
            "upgrade KForge, or name another place"
        )
    with _one_at_a_time:  # Alembic keeps what it works on in module globals
        command.upgrade(config, "head")


def version(connection: Connection) -> str | None:
    """The last step a store has seen; None for an empty one."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision = connection.execute(text(f"select version_num from {VERSION_TABLE}")).scalar()
    return None if revision is None else str(revision)
