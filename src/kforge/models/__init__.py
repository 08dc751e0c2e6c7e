"""Whatever answers prompts: hosted and local models, command lines, people, records; and wrappers around them.

    factory.py     a name on the command line -> a bare model
    hosted.py      provider:model, through the providers' own client libraries
    plugins/       every other name: command.py is command:CLI, a program that reads a prompt and prints a reply;
                   mailbox.py is mailbox:DIR, prompts as files out, replies as files in; replay.py is replay:FILE.
                   Third parties have the entry point kforge.models
    recordings.py  the files that replay:FILE reads, and the wrapper that writes them
    scripted.py    replies written in advance, for tests and benchmarks

Wrappers are models too and work in any order. The usual one, from the outside in:

    Recording(Caching(Budgeted(Retrying(Limited(model)))))

so that a cached reply costs nothing, waiting is not paid for, and each try takes its turn.
"""
