"""What every package carries along: how its program is guarded, loaded, registered and put into models.

Standard library and torch only: a package needs no KForge.
"""
