"""The two agents: a writer of programs and an analyst of profiles; a model or rules behind each."""
