"""What runs leave behind: SQLite by default, PostgreSQL by URL, big things in files named by their hash.

store.py        Store: the face
place.py        where a store lives: a folder or a URL
database.py     the engine and its transactions
faults.py       what a broken disk or database is told as
migration.py    brings a store's tables up to date; migrations/ holds the steps
schema.py       the tables as they are now
records.py      attempts as documents and back
experiments.py  Experiments: the face for those; experiment_rows.py is what is asked of their tables
runs.py, attempts.py, calls.py    what is asked of each table
proven.py       which platforms have a correct program for a problem
blobs.py        files by SHA-256
locks.py        one process per run
"""
