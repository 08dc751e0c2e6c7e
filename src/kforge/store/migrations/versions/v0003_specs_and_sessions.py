"""A run's request is its specification, with the donor as a record of its own; an experiment's sitting is a session."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.rename_table("kforge_sittings", "kforge_sessions")
    # Both databases know this sentence; Alembic's own would copy the tables on SQLite.
    op.execute("ALTER TABLE kforge_cells RENAME COLUMN sitting TO session")
    op.execute("ALTER TABLE kforge_runs RENAME COLUMN request TO spec")
    runs = sa.table("kforge_runs", sa.column("number", sa.Integer), sa.column("spec", sa.Text))
    connection = op.get_bind()
    for number, document in connection.execute(sa.select(runs.c.number, runs.c.spec)).all():
        try:
            spec = json.dumps(_specification(json.loads(document)), separators=(",", ":"))
        except ValueError:
            # A damaged record is told as one when its run is read; the others must open.
            continue
        connection.execute(sa.update(runs).where(runs.c.number == number).values(spec=spec))


def _specification(request: dict[str, object]) -> dict[str, object]:
    """The document of a RunSpec from that of a request."""
    source, origin = request.pop("reference", ""), request.pop("reference_origin", "")
    request["analyst_model"] = request.pop("analyst", "")
    request["reference"] = ""
    request["donor"] = {"source": source, "origin": origin} if source else None
    return request
