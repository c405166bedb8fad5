"""The same bits, and no hang, after a fork and from many threads."""

import os
import select
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import lockstep

ROWS, WIDTH = 64, 2048


@pytest.fixture(scope="module")
def columns():
    random = np.random.default_rng(0)
    old = -2 * random.random((ROWS, WIDTH), dtype=np.float32)
    logp = np.minimum(old + 0.1 * random.standard_normal((ROWS, WIDTH), dtype=np.float32), 0)
    return dict(rewards=random.random(ROWS, dtype=np.float32), logp_old=old, logp=logp, group_size=8)


def bits(columns):
    credit, loss = lockstep.step("dapo", **columns)
    return credit.advantage.tobytes() + loss.coef.tobytes() + np.float64(loss.loss).tobytes()


def test_a_fork_after_use_computes_on(columns):
    want = bits(columns)
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writes, b"same" if bits(columns) == want else b"other bits")
        finally:
            os._exit(0)
    os.close(writes)
    try:
        there, _, _ = select.select([reads], [], [], 60)
        assert there, "the child hangs"
        assert os.read(reads, 16) == b"same"
    finally:
        os.close(reads)
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_eight_threads_have_the_bits_of_one(columns):
    want = bits(columns)
    with ThreadPoolExecutor(8) as pool:
        assert all(got == want for got in pool.map(lambda _: bits(columns), range(64)))
