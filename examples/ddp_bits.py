"""Loss, metrics, whitened advantages and gradients of one batch on 1, 2 and 3 ranks: one digest.

    python examples/ddp_bits.py                         # worlds of 1, 2 and 3 local processes, one after the other
    torchrun --nproc-per-node 4 examples/ddp_bits.py    # a single world, started by torchrun

Each rank has some of the prompts, in shuffled order. Next to the digest it prints the loss from a float64
all-reduce, whose last digits depend on the number of ranks. Needs `pip install lockstep-rl torch numpy`.
"""

import hashlib
import os
import socket

import numpy as np

import lockstep
from lockstep import distributed

# GRPO's advantages without the group's deviation, whitened over the whole batch (REINFORCE++'s baseline variant),
# with DAPO's loss.
RECIPE = {"extends": "dapo", "advantage.norm_by_std": False}
PROMPTS, RESPONSES = 60, 4


def prompts(numbers):
    """Packed columns of the responses to these prompts. A prompt's data depend only on its number, not on the rank."""
    columns = {name: [] for name in ("logp_old", "logp", "loss_mask", "rewards")}
    lengths = []
    for number in numbers:
        random = np.random.default_rng(number)
        lengths.extend(random.integers(1, 60, RESPONSES))
        tokens = sum(lengths[-RESPONSES:])
        old = -random.exponential(size=tokens)
        columns["logp_old"].append(old)
        columns["logp"].append(np.minimum(old + 0.3 * random.standard_normal(tokens), 0))
        columns["loss_mask"].append(random.random(tokens) > 0.1)
        columns["rewards"].append(random.random(RESPONSES) * 10.0 ** random.integers(-3, 4))
    batch = {name: np.concatenate(parts) for name, parts in columns.items()}
    batch = {name: array if array.dtype == bool else array.astype("f4") for name, array in batch.items()}
    offsets = np.cumsum([0, *lengths]).astype("u4")
    return dict(batch, cu_seqlens=offsets, cu_groups=np.arange(0, len(lengths) + 1, RESPONSES, dtype="u4"))


def deal(world, seed=0):
    """The prompts of each rank."""
    return np.array_split(np.random.default_rng([world, seed]).permutation(PROMPTS), world)


def update(columns, group=None):
    """One rank's work: the whole batch's totals, and its own rows' advantages and loss."""
    rows = dict(loss_mask=columns["loss_mask"], cu_seqlens=columns["cu_seqlens"])
    counts = distributed.counts(group, **rows)
    credit = distributed.whiten(lockstep.advantages(RECIPE, **columns), "verl", group, **rows)
    loss = lockstep.loss(RECIPE, credit, counts=counts, **columns)
    return distributed.reduce(loss.totals, group), credit, loss


def by_prompt(numbers, columns, credit, loss):
    """Maps each prompt to the bytes of its advantages and gradients."""
    ends = np.asarray(columns["cu_seqlens"])[np.asarray(columns["cu_groups"])]
    advantage, coef = np.asarray(credit.advantage), np.asarray(loss.coef)
    return {
        int(number): advantage[RESPONSES * i : RESPONSES * (i + 1)].tobytes() + coef[ends[i] : ends[i + 1]].tobytes()
        for i, number in enumerate(numbers)
    }


def digest(totals, of_ranks):
    """Hashes the totals and every rank's `by_prompt`."""
    of_prompts = {number: bytes_ for own in of_ranks for number, bytes_ in own.items()}
    sha = hashlib.sha256(totals.to_bytes() + repr((totals.loss, totals.metrics)).encode())
    for number in sorted(of_prompts):
        sha.update(of_prompts[number])
    return sha.hexdigest()[:16]


def main(rank, world, address=None):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", address, rank=rank, world_size=world) if address else dist.init_process_group("gloo")
    numbers = deal(world)[rank]
    columns = {name: torch.from_numpy(array) for name, array in prompts(numbers).items()}
    totals, credit, loss = update(columns)
    floats = loss.loss.clone()
    dist.all_reduce(floats)
    of_ranks = [None] * world
    dist.all_gather_object(of_ranks, by_prompt(numbers, columns, credit, loss))
    if rank == 0:
        print(f"{world} ranks: digest {digest(totals, of_ranks)}, loss {totals.loss!r}; all_reduce in float64: {floats.item()!r}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        from torch.multiprocessing import start_processes

        for world in (1, 2, 3):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            start_processes(main, (world, f"tcp://127.0.0.1:{port}"), nprocs=world, start_method="fork")
