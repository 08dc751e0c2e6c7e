"""The command line. `app.py` names the commands; each imports what it needs only when it is run."""
