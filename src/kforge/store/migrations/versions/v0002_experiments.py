"""Experiments: what was asked, when somebody worked on them, and which run belongs to which cell."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "kforge_experiments",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "kforge_sittings",
        sa.Column("experiment", sa.Integer, sa.ForeignKey("kforge_experiments.number"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "kforge_cells",
        sa.Column("experiment", sa.Integer, sa.ForeignKey("kforge_experiments.number"), primary_key=True),
        sa.Column("cell", sa.Text, primary_key=True),
        sa.Column("run", sa.Integer, sa.ForeignKey("kforge_runs.number")),
        sa.Column("failure", sa.Text, nullable=False),
        sa.Column("confirmation", sa.Text),
        sa.Column("sitting", sa.Integer, nullable=False),
    )
