"""Where jobs are carried out: this machine, another one that a folder is carried to, or nowhere at all (for tests)."""
