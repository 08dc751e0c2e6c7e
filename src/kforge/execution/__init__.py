"""Where jobs are carried out: this machine, another one that a folder is carried to, or nowhere at all (for tests).

factory.py         a name on the command line -> an executor
executor_names.py  what a name means: which plug-in, which argument
plugins/           one file each, found by name through the registry; third parties have the entry point
                   kforge.executors
"""
