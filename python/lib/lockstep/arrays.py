"""Addresses of arrays for single ops, for `lockstep.routing`, `lockstep.logits` and `lockstep.tree`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _device
from .columns import Column, error, library

Place = tuple[int, int, int]


def places(of: Any, arrays: dict[str, Any]) -> dict[str, Place]:
    """Returns address, number of elements and bytes per element of each array that is present."""
    found = {name: (*of.place(array), array.itemsize) for name, array in arrays.items() if array is not None}
    for name, (at, _, size) in found.items():
        if at % size:
            raise error(name, f" starts at address {at:#x}: expected a multiple of {size}, its bytes per element; .clone() starts at one")
    return found


def launch(op: Callable[..., Any], *arguments: Any, **arrays: Any) -> None:
    """Runs a native op on its arrays' device, on torch's current stream there, and waits for it.

    Arrays are contiguous and have the op's own types; the caller also provides the outputs. Raises
    `lockstep.Error`.
    """
    given = {name: array for name, array in arrays.items() if array is not None}
    of: Any = library(given.values())
    for name, array in given.items():
        if array.device != of.device:
            raise error(name, f" is on {array.device}: expected {of.device}, like the other arrays")
        if not array.is_contiguous():
            raise error(name, " is not contiguous: call .contiguous()")
    threads = of.torch.get_num_threads() if of.name == "cpu" else None
    op((_device(of.name, threads), of.stream), *arguments, places(of, given))


def cast(name: str, type_: str, tensor: Any, like: Any) -> Any:
    """Converts a tensor to an op's own type, on the device of `like`; None stays None."""
    return None if tensor is None else library([like]).cast(Column(-1, name, type_, "", ""), tensor)


def check_tensor(name: str, value: Any) -> None:
    """Refuses anything but a dense tensor of torch."""
    import torch  # `lockstep.tree` does without.

    if not isinstance(value, torch.Tensor):
        raise error(name, f" is a {type(value).__name__}: expected a tensor")
    if value.layout != torch.strided:
        raise error(name, f" has layout {value.layout}: expected a dense tensor")


def check_constant(name: str, tensor: Any) -> None:
    """Refuses a tensor that requires a gradient but would not get one."""
    if getattr(tensor, "requires_grad", False):
        raise error(name, " requires grad but would receive no gradient: detach it")


def check_shape(name: str, array: Any, *expected: int | None) -> None:
    """Refuses any other shape; None stands for any size."""
    shape = tuple(array.shape)
    if len(shape) != len(expected) or any(want not in (None, got) for want, got in zip(expected, shape)):
        wanted = ", ".join("*" if want is None else str(want) for want in expected)
        raise error(name, f" has shape {list(shape)}: expected [{wanted}]")
