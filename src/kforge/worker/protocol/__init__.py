"""What judge and runner say to each other: a frozen record for each request and for each answer.

`base` is the form of every message, `records` what several of them hold; `program` (loading and describing a program),
`calls` (calling it) and `keeper` (forking, stopping and ending it) are the messages. Standard library only.
"""
