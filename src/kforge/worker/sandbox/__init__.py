"""How a runner is held: levels from strongest to weakest, and what each gives.

bubblewrap   bwrap builds the view of the file system; each runner then gets namespaces of its own
unshare      the same view and namespaces, made with the kernel's own calls
process      a plain process with resource limits
"""
