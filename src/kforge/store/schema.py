"""The tables of a store, as they are now. `migrations/` says how they came to be."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

HEAD = "0003"
"""The last step of `migrations/`."""
VERSION_TABLE = "kforge_version"
"""Names begin with kforge_, so that a store can share a database with others."""

metadata = MetaData()

runs = Table(
    "kforge_runs",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("problem_id", Text, nullable=False),
    Column("problem", Text, nullable=False),
    Column("platform", Text, nullable=False),
    Column("models", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("spec", Text, nullable=False),
)

attempts = Table(
    "kforge_attempts",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("run", Integer, ForeignKey("kforge_runs.number"), nullable=False),
    Column("chain", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("counts", Boolean, nullable=False),
    Column("speedup", Double),
    Column("sure", Double, nullable=False),
    Column("created", Double, nullable=False),
    Column("document", Text, nullable=False),
    UniqueConstraint("run", "chain", "step", name="kforge_attempts_once"),
    Index("kforge_attempts_summary", "run", "counts", "sure"),
)

calls = Table(
    "kforge_calls",
    metadata,
    Column("run", Integer, ForeignKey("kforge_runs.number"), primary_key=True),
    Column("slot", Text, primary_key=True),
    Column("model", Text, nullable=False),
    Column("prompt_id", Text, nullable=False),
    Column("prompt", Text),
    Column("requests", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("dollars", Double, nullable=False),
    Column("unpriced", BigInteger, nullable=False),
    Column("created", Double, nullable=False),
    Column("document", Text, nullable=False),
)

experiments = Table(
    "kforge_experiments",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("document", Text, nullable=False),
)

sessions = Table(
    "kforge_sessions",
    metadata,
    Column("experiment", Integer, ForeignKey("kforge_experiments.number"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("document", Text, nullable=False),
)

cells = Table(
    "kforge_cells",
    metadata,
    Column("experiment", Integer, ForeignKey("kforge_experiments.number"), primary_key=True),
    Column("cell", Text, primary_key=True),
    Column("run", Integer, ForeignKey("kforge_runs.number")),
    Column("failure", Text, nullable=False),
    Column("confirmation", Text),
    Column("session", Integer, nullable=False),
)
