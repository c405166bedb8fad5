"""The exception of the package."""

from __future__ import annotations


class LockstepError(ValueError):
    """What was refused: `lockstep.Error`."""

    argument: str | None = None
    """The argument that is wrong, if it is one."""
    index: int | None = None
    """Where in it, if it is one entry."""


LockstepError.__module__ = "lockstep"
