"""What was called a sitting is a session."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.rename_table("kforge_sittings", "kforge_sessions")
    # Both databases know this sentence; Alembic's own would copy the table on SQLite.
    op.execute("ALTER TABLE kforge_cells RENAME COLUMN sitting TO session")
