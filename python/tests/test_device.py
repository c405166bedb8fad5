"""Every recipe on a GPU's memory gives the CPU's bytes: on the drivers that `cargo xtask emulate` lays, or on those of a machine with a GPU.

`LOCKSTEP_REQUIRE` names the backend, cuda or rocm, as for the Rust tests.
"""

import ctypes
import os
from typing import NamedTuple

import numpy as np
import pytest
from test_recipes import BINARY, made

import lockstep
from lockstep import columns

BACKEND = os.environ.get("LOCKSTEP_REQUIRE")
pytestmark = pytest.mark.skipif(not (BACKEND and BINARY), reason="LOCKSTEP_REQUIRE and LOCKSTEP_BIN name no backend and no binary")


class Driver:
    """Memory of a device by the vendor's own calls."""

    def __init__(self, backend):
        self.cuda = backend == "cuda"
        self.library = ctypes.CDLL("libcuda.so.1" if self.cuda else "libamdhip64.so")
        if self.cuda:
            context = ctypes.c_void_p()
            self.call("cuInit", 0)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            self.call("cuCtxPushCurrent_v2", context)

    def call(self, name, *arguments):
        assert getattr(self.library, name)(*arguments) == 0, name

    def allocate(self, size):
        address = ctypes.c_void_p()
        self.call("cuMemAlloc_v2" if self.cuda else "hipMalloc", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address):
        self.call("cuMemFree_v2" if self.cuda else "hipFree", ctypes.c_void_p(address))

    def upload(self, address, array):
        self._copy("cuMemcpyHtoDAsync_v2", 1, address, array.ctypes.data, array.nbytes)

    def download(self, array, address):
        self._copy("cuMemcpyDtoHAsync_v2", 2, array.ctypes.data, address, array.nbytes)

    def _copy(self, name, kind, to, source, size):
        if size == 0:
            return
        to, source, size, stream = ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), ctypes.c_void_p()
        if self.cuda:
            self.call(name, to, source, size, stream)
            self.call("cuStreamSynchronize", stream)
        else:
            self.call("hipMemcpyAsync", to, source, size, kind, stream)
            self.call("hipStreamSynchronize", stream)


class Uploaded(NamedTuple):
    array: np.ndarray
    address: int


class OnDevice(columns.NumPy):
    """Arrays of NumPy, copied to a device and back."""

    def __init__(self, backend):
        super().__init__()
        self.name, self.driver, self.held = f"{backend}:0", Driver(backend), []

    def upload(self, array):
        address = self.driver.allocate(array.nbytes)
        self.held.append(address)
        self.driver.upload(address, array)
        return Uploaded(array, address)

    def release(self):
        while self.held:
            self.driver.free(self.held.pop())

    def cast(self, column, value):
        return self.upload(super().cast(column, value))

    def shape(self, array):
        return array.array.shape

    def place(self, array):
        return array.address, array.array.size

    def offsets(self, step, rows):
        return self.upload(super().offsets(step, rows))

    def workspace(self, size):
        block = self.upload(np.zeros(size, "u1"))
        return block, block.address

    def result(self, block, type_, count, at):
        own = super().result(block.array, type_, count, at)
        self.driver.download(own, block.address + at)
        return own

    def numbers(self, array):
        return getattr(array, "array", array).tolist()


@pytest.fixture(scope="module")
def device():
    return OnDevice(BACKEND)


@pytest.mark.parametrize("name", lockstep.names())
def test_a_device_gives_the_cpus_bytes(name, device, tmp_path, monkeypatch):
    given, _ = made(tmp_path, name)
    want = lockstep.step(name, **given)
    monkeypatch.setattr(columns, "library", lambda _: device)
    try:
        got = lockstep.step(name, **given)
    finally:
        device.release()
    for mine, theirs in zip(got, want):
        for key, array in vars(theirs).items():
            if isinstance(array, np.ndarray):
                assert getattr(mine, key).tobytes() == array.tobytes(), key
    assert got[1].metrics == want[1].metrics
