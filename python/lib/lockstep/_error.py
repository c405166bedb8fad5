"""The exception of the package."""

from __future__ import annotations


class LockstepError(ValueError):
    """Raised when a call is refused; exported as `lockstep.Error`."""

    argument: str | None = None
    """The invalid argument, if the error is about one."""
    index: int | None = None
    """The index of the invalid entry, if the error is about one."""


LockstepError.__module__ = "lockstep"
