"""Addresses of a batch's columns: the only place that inspects NumPy arrays and torch tensors.

A contiguous array of the column's own type is passed as it is. Other types are copied: floats of another
width to float32, integer masks to bytes, 64-bit offsets to 32 bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from operator import index as integer
from typing import Any, NamedTuple

from ._error import LockstepError
from ._native import columns as _columns

TOKENS, SEQUENCES = "[N]", "[S]"
_LARGEST = 0xFFFF_FFFF


class Column(NamedTuple):
    """A column of a batch."""

    number: int
    name: str
    type: str
    shape: str
    meaning: str


COLUMNS = {name: Column(i, name, *rest) for i, (name, *rest) in enumerate(_columns())}


NUMBERS = {name: column.number for name, column in COLUMNS.items()}


def error(argument: str, message: str, index: int | None = None) -> LockstepError:
    """Returns the exception for an argument."""
    exception = LockstepError(f"`{argument}`{message}")
    exception.argument, exception.index = argument, index
    return exception


def positive(name: str, value: Any) -> int:
    """Returns a positive integer, of whatever type, as an int."""
    try:
        number = integer(value)
    except TypeError:
        number = 0
    if number < 1:
        raise error(name, f" is {value!r}: expected a positive integer")
    return number


def on_host(value: Any, torch: Any) -> Any:
    """Returns a tensor or another array as a NumPy array, without its gradient."""
    import numpy

    if torch is None or not isinstance(value, torch.Tensor):
        return numpy.asarray(value)
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


class NumPy:
    """NumPy arrays."""

    name, stream, threads = "cpu", 0, None

    def __init__(self) -> None:
        import numpy

        self.np = numpy

    def fits(self, value: Any, type_: str) -> bool:
        """Returns whether `cast` would return the array itself."""
        return False

    def cast(self, column: Column, value: Any) -> Any:
        np = self.np
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as failure:
            # torch has all three for tensors that are none: with a gradient, of half precision, on a device.
            raise error(column.name, f" is not an array: {failure}") from None
        own = np.dtype({"u8": "u1", "u32": "u4", "u64": "u8", "f32": "f4", "f64": "f8"}[column.type])
        if array.dtype == own:
            pass
        elif array.dtype == bool and column.type == "u8":
            array = array.view("u1")
        elif column.type == "u8" and array.dtype.kind in "iu":
            array = (array != 0).view("u1")
        elif own.kind == "f" and array.dtype.kind == "f":
            array = array.astype(own)
        elif own.kind == "u" and array.dtype.kind in "iu":
            if array.size and (array.min() < 0 or array.max() > np.iinfo(own).max):
                bad = int(np.flatnonzero((array < 0) | (array > np.iinfo(own).max))[0])
                raise error(column.name, f"[{bad}] is {array.flat[bad]}: expected 0 to {np.iinfo(own).max}", bad)
            array = array.astype(own)
        else:
            raise error(column.name, f" has type {array.dtype}: expected {own}")
        return self.aligned(np.ascontiguousarray(array))

    def aligned(self, array: Any) -> Any:
        # Bytes read from a file may start anywhere.
        return array if array.flags.aligned else array.copy()

    def shape(self, array: Any) -> tuple[int, ...]:
        return array.shape

    def place(self, array: Any) -> tuple[int, int]:
        return array.__array_interface__["data"][0], array.size

    def offsets(self, step: int, rows: int) -> Any:
        return self.np.arange(0, step * rows + 1, max(step, 1), dtype="u4") if step else self.np.zeros(rows + 1, "u4")

    def workspace(self, size: int) -> tuple[Any, int]:
        block = self.np.empty(size + 64, "u1")
        start = -block.__array_interface__["data"][0] % 64
        block = block[start : start + size]
        return block, block.__array_interface__["data"][0]

    def result(self, block: Any, type_: str, count: int, at: int) -> Any:
        own = {"u8": "u1", "u32": "u4", "u64": "u8", "f32": "f4", "f64": "f8"}[type_]
        return block[at : at + count * int(own[1])].view(own)

    def reshaped(self, array: Any, shape: tuple[int, ...]) -> Any:
        return array.reshape(shape)

    def clear(self, array: Any, keep: Any) -> None:
        array[keep == 0] = 0.0

    def numbers(self, array: Any) -> list:
        return array.tolist()

    def host(self, array: Any) -> Any:
        return array

    def empty_like(self, array: Any) -> Any:
        return self.np.empty_like(array)


class Torch:
    """torch tensors on one device."""

    def __init__(self, device: Any) -> None:
        import torch

        if device.type not in ("cpu", "cuda"):
            raise LockstepError(f"tensors are on {device}: expected cpu or cuda (of CUDA or ROCm)")
        self.torch, self.device, self.on_gpu = torch, device, device.type == "cuda"
        hip = torch.version.hip is not None
        self.name = "cpu" if device.type == "cpu" else f"{'rocm' if hip else 'cuda'}:{device.index or 0}"
        self.types = {
            "u8": torch.uint8,
            "u32": torch.uint32,
            "u64": torch.uint64,
            "f32": torch.float32,
            "f64": torch.float64,
        }
        self._shared: dict[Any, Any] = {}
        signed = {torch.int32: torch.uint32, torch.int64: torch.uint64, torch.int8: torch.uint8, torch.bool: torch.uint8}
        self.unsigned = signed

    @property
    def stream(self) -> int:
        if self.name == "cpu":
            return 0
        return self.torch.cuda.current_stream(self.device).cuda_stream

    @property
    def threads(self) -> int | None:
        return self.torch.get_num_threads() if self.name == "cpu" else None

    def cast(self, column: Column, value: Any) -> Any:
        torch = self.torch
        if not isinstance(value, torch.Tensor):
            value = torch.as_tensor(NumPy().cast(column, value)).to(self.device)
        if value.device != self.device:
            raise error(column.name, f" is on {value.device}: expected {self.device}, like the other columns")
        if value.layout != torch.strided:
            raise error(column.name, f" has layout {value.layout}: expected a dense tensor")
        value, own = value.detach(), self.types[column.type]
        if value.dtype == own:
            pass
        elif self.unsigned.get(value.dtype) == own:
            value = value.view(own)
        elif own.is_floating_point and value.dtype.is_floating_point:
            value = value.to(own)
        elif column.type == "u8" and not value.dtype.is_floating_point:
            value = (value != 0).view(own)
        elif column.type == "u32" and value.dtype == torch.int64:
            # On a GPU, what does not fit becomes the largest number, which no offset or id can be.
            if value.is_cpu and value.numel():
                least, most = (int(end) for end in value.aminmax())
                if least < 0 or most > _LARGEST:
                    bad = int(((value < 0) | (value > _LARGEST)).flatten().nonzero()[0])
                    raise error(column.name, f"[{bad}] is {value.flatten()[bad]}: expected 0 to {_LARGEST}", bad)
            value = value.clamp(-1, _LARGEST).to(torch.int32).view(own)
        else:
            raise error(column.name, f" has type {value.dtype}: expected {own}")
        return self.aligned(value.contiguous())

    def aligned(self, tensor: Any) -> Any:
        # Bytes read from a file may start anywhere.
        return tensor.clone() if tensor.data_ptr() % tensor.itemsize else tensor

    def shape(self, array: Any) -> tuple[int, ...]:
        return tuple(array.shape)

    def fits(self, value: Any, type_: str) -> bool:
        """Returns whether `cast` would return the tensor itself, or another that shares its memory."""
        own = isinstance(value, self.torch.Tensor) and value.dtype == self.types[type_]
        return own and value.device == self.device and value.is_contiguous() and not value.data_ptr() % value.itemsize

    def place(self, array: Any) -> tuple[int, int]:
        at, count = array.data_ptr(), array.numel()
        if count and not at:
            raise LockstepError(f"a {type(array).__name__} has no memory of its own: expected a plain tensor, such as a DTensor's .to_local()")
        if array.is_neg():
            raise LockstepError("a tensor is negated lazily, and its memory has the other signs: expected a plain tensor, .resolve_neg()")
        return at, count

    def offsets(self, step: int, rows: int) -> Any:
        torch = self.torch
        return self.shared((step, rows), lambda: (torch.arange(rows + 1, dtype=torch.int32, device=self.device) * step).view(torch.uint32))

    @property
    def capturing(self) -> bool:
        """Whether a CUDA graph records what runs on the current stream."""
        return self.on_gpu and self.torch.cuda.is_current_stream_capturing()

    def lasts(self, tensor: Any) -> bool:
        """Returns whether later calls may use a tensor: it is no stand-in of a trace, nor written by a replay alone."""
        wrapped = self.torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        return type(tensor) is self.torch.Tensor and not wrapped and not self.capturing

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """Returns the tensor that `make` makes, kept for all calls with this key.

        A graph makes its own: its replays would outlive a kept one.
        """
        torch = self.torch
        if torch.compiler.is_compiling() or self.capturing:
            return make()
        tensor = self._shared.get(key)
        if tensor is None:
            tensor = make()
            if self.lasts(tensor):
                if tensor.is_cuda:
                    # Launches on other streams will not wait for it.
                    torch.cuda.current_stream(self.device).synchronize()
                if len(self._shared) >= 256:
                    self._forget()
                self._shared[key] = tensor
        return tensor

    def _forget(self) -> None:
        if self.on_gpu:
            # Launches on any stream may still read the tensors.
            self.torch.cuda.synchronize(self.device)
        _LAYOUTS.clear()
        self._shared.clear()

    def workspace(self, size: int) -> tuple[Any, int]:
        # float32 elements, as in most results: each view of a tensor costs a microsecond.
        align = 64 if self.device.type == "cpu" else 256
        block = self.torch.empty((size + align + 3) // 4, dtype=self.torch.float32, device=self.device)
        start = -block.data_ptr() % align // 4
        block = block[start:] if start else block
        return block, block.data_ptr()

    def result(self, block: Any, type_: str, count: int, at: int) -> Any:
        own = self.types[type_]
        if type_ == "f32":
            return block[at // 4 : at // 4 + count]
        whole = block[at // 4 : (at + count * own.itemsize + 3) // 4].view(own)
        return whole if whole.numel() == count else whole[:count]

    def reshaped(self, array: Any, shape: tuple[int, ...]) -> Any:
        return array.view(shape)

    def clear(self, array: Any, keep: Any) -> None:
        array.masked_fill_(keep == 0, 0.0)

    def numbers(self, array: Any) -> list:
        return array.tolist()

    def host(self, array: Any) -> Any:
        return array.cpu()

    def empty_like(self, array: Any) -> Any:
        return self.torch.empty_like(array)


@cache
def _torch(device: Any) -> Torch:
    return Torch(device)


@cache
def _numpy() -> NumPy:
    return NumPy()


def library(values: Any) -> NumPy | Torch:
    """Returns the library of the arrays among `values`; torch if any is a tensor."""
    torch = sys.modules.get("torch")
    if torch is not None:
        for value in values:
            if isinstance(value, torch.Tensor):
                return _torch(value.device)
    return _numpy()


class _Layout(NamedTuple):
    """The layout of a batch whose tensors are passed as they are.

    It is cached, because analysing a batch takes longer than a small loss.
    """

    library: Any
    padded: tuple[int, int] | None
    size: tuple[int, int, int]
    added: dict[str, Any]


# By names, types, shapes and devices.
_LAYOUTS: dict[Any, _Layout] = {}


def _key(given: dict[str, Any], group_size: int | None) -> tuple[Any, ...] | None:
    torch = sys.modules.get("torch")
    key: list[Any] = [group_size]
    for name, value in given.items():
        if torch is None or not isinstance(value, torch.Tensor) or not value.is_contiguous():
            return None
        key += name, value.dtype, value.shape, value.device
    return tuple(key)


class Batch:
    """Columns of one batch, ready to be passed; tokens are packed, or padded to `[B, T]`."""

    def __init__(self, columns: dict[str, Any], group_size: int | None) -> None:
        given = {name: value for name, value in columns.items() if value is not None}
        if group_size is not None and "cu_groups" in given:
            raise error("group_size", " is given beside cu_groups: expected one of the two")
        if group_size is not None:
            group_size = positive("group_size", group_size)
        self._key = key = _key(given, group_size)
        layout = _LAYOUTS.get(key)
        if layout is not None and not (layout.added and layout.library.capturing):
            self.library, self.padded, self.size, added = layout
            given.update(added)
            self.arrays = given
            return
        unknown = [name for name in columns if name not in COLUMNS]
        if unknown:
            raise error(unknown[0], f" is not a column: expected one of {', '.join(COLUMNS)}")
        self.library = of = library(given.values())
        self.arrays = {name: of.cast(COLUMNS[name], value) for name, value in given.items()}
        self.padded: tuple[int, int] | None = None
        self._pad()
        if "cu_seqlens" not in self.arrays:
            if self.padded is None:
                raise error("cu_seqlens", " is missing: pass it, or token columns as [B, T]")
            self.arrays["cu_seqlens"] = of.offsets(self.padded[1], self.padded[0])
        sequences = self._rows("cu_seqlens")
        if "cu_groups" not in self.arrays:
            size = group_size or max(sequences, 1)
            if sequences % size:
                raise error("group_size", f" is {size}: expected a divisor of the {sequences} sequences")
            self.arrays["cu_groups"] = of.offsets(size, sequences // size)
        self.size = (self._tokens(), sequences, self._rows("cu_groups"))
        for name, array in self.arrays.items():
            shape = of.shape(array)
            if COLUMNS[name].shape == "[K·S]" and len(shape) > 1 and (len(shape) > 2 or shape[1] != sequences):
                raise error(name, f" has shape {list(shape)}: expected [K, {sequences}]")
        same = key is not None and all(array.data_ptr() == given[name].data_ptr() for name, array in self.arrays.items() if name in given)
        if same and any(COLUMNS[name].shape == TOKENS for name in given):
            added = {name: array for name, array in self.arrays.items() if name not in given}
            if isinstance(of, Torch) and all(of.lasts(array) for array in added.values()):
                if len(_LAYOUTS) >= 1024:
                    _LAYOUTS.clear()
                _LAYOUTS[key] = _Layout(of, self.padded, self.size, added)

    def _rows(self, name: str) -> int:
        shape = self.library.shape(self.arrays[name])
        if len(shape) != 1:
            raise error(name, f" has shape {list(shape)}: expected {COLUMNS[name].shape}")
        return max(shape[0] - 1, 0)

    def check_shape(self, name: str, array: Any, per_token: bool) -> None:
        """Refuses an array of two dimensions, except per token in the shape of padded columns."""
        shape = self.library.shape(array)
        if len(shape) > 1 and not (per_token and shape == self.padded):
            expected = list(self.padded) if per_token and self.padded else "one dimension"
            raise error(name, f" has shape {list(shape)}: expected {expected}")

    def _pad(self) -> None:
        """Treats padded tokens as packed tokens whose offsets are multiples of the row length."""
        of = self.library
        for name, array in self.arrays.items():
            shape = of.shape(array)
            if COLUMNS[name].shape != TOKENS or len(shape) != 2:
                continue
            if self.padded not in (None, shape):
                raise error(name, f" has shape {list(shape)}: expected {list(self.padded)}, like the other token columns")
            self.padded = shape
        if self.padded and "cu_seqlens" in self.arrays:
            raise error("cu_seqlens", " is for packed columns, but the token columns are padded, [B, T]")
        for name, array in self.arrays.items():
            column, shape = COLUMNS[name], of.shape(array)
            if column.shape == TOKENS and self.padded and len(shape) != 2:
                raise error(name, f" has shape {list(shape)}: expected {list(self.padded)}, like the other token columns")
            if len(shape) > 1 and not (column.shape == TOKENS and self.padded) and column.shape != "[K·S]":
                raise error(name, f" has shape {list(shape)}: expected {column.shape}")

    def _tokens(self) -> int:
        # Last the mask: where it has another length than the others, it is the one to be named.
        for name in sorted(self.arrays, key="loss_mask".__eq__):
            if COLUMNS[name].shape == TOKENS:
                return self.library.place(self.arrays[name])[1]
        offsets = self.arrays["cu_seqlens"]
        return self.library.numbers(offsets[-1:])[0] if self._rows("cu_seqlens") else 0

    def check_signs(self, name: str | None) -> None:
        """Refuses a negative number in the int32 column `name`; ops read it without its sign."""
        key = self._key or ()
        if name not in key or key[key.index(name) + 1] != self.library.torch.int32:
            return
        numbers = self.arrays[name].view(self.library.torch.int32)
        for index in (numbers < 0).nonzero().flatten().tolist()[:1]:
            raise error(name, f"[{index}] is {numbers[index]}: expected 0 to {_LARGEST}", index)

    def places(self, reads: frozenset[int]) -> list[tuple[int, int, int]]:
        """Returns number, address and elements of each column whose number is in `reads`."""
        place, found = self.library.place, []
        for name, array in self.arrays.items():
            if (number := NUMBERS[name]) in reads:
                at, count = place(array)
                if at & 7:
                    # Tensors of a known layout come here without `cast`.
                    array = self.arrays[name] = self.library.aligned(array)
                    at, count = place(array)
                found.append((number, at, count))
        return found

    def by_tokens(self, array: Any) -> Any:
        """Reshapes a per-token result to the shape of the token columns."""
        return self.library.reshaped(array, self.padded) if self.padded else array
