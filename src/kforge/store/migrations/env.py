"""Alembic's entry: runs the steps on the connection it is handed, inside that connection's transaction."""

from alembic import context

from kforge.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
context.run_migrations()
