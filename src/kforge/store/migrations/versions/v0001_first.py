"""Runs, attempts, calls."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "kforge_runs",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("problem_id", sa.Text, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("models", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("updated", sa.Double, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
    )
    op.create_table(
        "kforge_attempts",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("run", sa.Integer, sa.ForeignKey("kforge_runs.number"), nullable=False),
        sa.Column("chain", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("counts", sa.Boolean, nullable=False),
        sa.Column("speedup", sa.Double),
        sa.Column("sure", sa.Double, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.UniqueConstraint("run", "chain", "step", name="kforge_attempts_once"),
    )
    op.create_index("kforge_attempts_summary", "kforge_attempts", ["run", "counts", "sure"])
    op.create_table(
        "kforge_calls",
        sa.Column("run", sa.Integer, sa.ForeignKey("kforge_runs.number"), primary_key=True),
        sa.Column("slot", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("prompt_id", sa.Text, nullable=False),
        sa.Column("prompt", sa.Text),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("dollars", sa.Double, nullable=False),
        sa.Column("unpriced", sa.BigInteger, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
