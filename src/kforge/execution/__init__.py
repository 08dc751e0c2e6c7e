"""Where jobs are carried out: this machine, or nowhere at all (for tests)."""
