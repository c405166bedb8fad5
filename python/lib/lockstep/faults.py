"""How a loss treats values that it refuses (an exception or NaN), and log-probabilities above 0.

A log-probability above 0 by a rounding error is common (a softmax of bfloat16 logits); one far above 0
indicates a broken kernel. The default refuses both. There is no way to let such a value pass unchanged: the
device reports one fault per row, and a value above 0 would hide the others.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from .columns import error

__all__ = ["bounded", "of_values", "refused"]

_WARNED: list[str] = []


def bounded(columns: dict[str, Any], positive_logp: str) -> dict[str, Any]:
    """Clamps log-probabilities to at most 0 if `positive_logp` is `"clamp"`; those above get no gradient."""
    if positive_logp not in ("error", "clamp"):
        raise error("positive_logp", f" is {positive_logp!r}: expected 'error' or 'clamp'")
    if positive_logp == "error":
        return columns
    return {
        name: value.clamp(max=0.0) if name.startswith("logp") and isinstance(value, Tensor) else value for name, value in columns.items()
    }


def of_values(error: Exception) -> bool:
    """Returns whether an error is about values of a batch, so that another rank may not have it."""
    return getattr(error, "index", None) is not None or "met a bad value" in str(error)


def refused(error: Exception, active: list[Tensor | None]) -> Tensor:
    """Returns NaN, whose gradient for every tensor of `active` is NaN; warns once per process."""
    if not _WARNED:
        _WARNED.append(str(error))
        warnings.warn(f"{error}: the loss is NaN (on_error='nan'; reported once)", RuntimeWarning, stacklevel=4)
    return torch.stack([(each.float() * float("nan")).sum() for each in active if each is not None]).sum()
