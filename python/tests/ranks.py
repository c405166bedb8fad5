"""What test_distributed.py runs on many ranks: seven of gloo (`python ranks.py gloo`) or of MPI (`mpiexec -n 7 python ranks.py mpi`), and groups of them.

Rank 0 prints what it saw as JSON.
"""

import hashlib
import json
import os
import socket
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import ddp_bits  # noqa: E402
import lockstep  # noqa: E402
from lockstep import distributed  # noqa: E402

RANKS, WORLDS = 7, (1, 2, 3, 7)


def world(rank, size, group, arrays, all_gather, add_floats):
    """Digest of an update on the first ranks, and the loss as a sum of float64."""
    numbers = ddp_bits.deal(size)[rank]
    columns = arrays(ddp_bits.prompts(numbers))
    totals, credit, loss = ddp_bits.update(columns, group)
    of_ranks = all_gather(ddp_bits.by_prompt(numbers, columns, credit, loss))
    return ddp_bits.digest(totals, of_ranks), float.hex(add_floats(float(loss.loss)))


def refused(call):
    try:
        call()
    except distributed.RankError as error:
        return [str(error), error.rank, error.argument, error.index]
    return None


def failures(own, bad, group, arrays):
    """What this rank sees where rank `bad` fails in each call; a call that works comes last, on ranks that are still in step."""
    columns = arrays(ddp_bits.prompts([own]))
    rows = dict(loss_mask=columns["loss_mask"], cu_seqlens=columns["cu_seqlens"])
    credit = lockstep.advantages(ddp_bits.RECIPE, **columns)
    spoilt = {**columns, "logp": columns["logp"] * 0 + 0.5} if own == bad else columns
    wrong = {**rows, "loss_mask": rows["loss_mask"][1:]} if own == bad else rows
    nan = arrays({"advantage": np.full(4, np.inf, "f4")})["advantage"]
    seen = [
        refused(lambda: distributed.reduce(lambda: lockstep.loss(ddp_bits.RECIPE, credit, **spoilt).totals(), group)),
        refused(lambda: distributed.counts(group, **wrong)),
        refused(lambda: distributed.whiten(nan if own == bad else credit.advantage, "trl", group, **rows)),
        refused(lambda: distributed.reduce("totals" if own == bad else lockstep.Totals(), group)),
    ]
    try:
        distributed.reduce(lockstep.Moments() if own == bad else lockstep.Totals(), group)
    except lockstep.Error as error:
        seen.append(str(error))
    return seen, distributed.counts(group, cu_seqlens=arrays({"o": np.array([0, 2, 2], "u4")})["o"]).tolist()


def gloo(rank, port):
    import torch
    import torch.distributed as dist

    import lockstep.torch
    from lockstep.context_parallel import ContextParallel

    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)

    def arrays(columns):
        return {name: torch.from_numpy(array) for name, array in columns.items()}

    def gather(value, group, size):
        values = [None] * size
        dist.all_gather_object(values, value, group=group)
        return values

    def add(value, group):
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor, group=group)
        return tensor.item()

    def context(group, layout):
        """Loss and gradients with the tokens of each row spread over the ranks of a group."""
        whole = arrays(ddp_bits.prompts(range(6)))
        credit = lockstep.advantages("dapo", **whole)
        cp = ContextParallel(whole["cu_seqlens"], group, layout)
        own, old, mask = (cp.cut(whole[name]) for name in ("logp", "logp_old", "loss_mask"))
        assert len(own) == cp.own_tokens
        own.requires_grad_()
        gathered = cp.gather(own, old, mask)
        assert all(torch.equal(got, whole[name]) for got, name in zip(gathered, ("logp", "logp_old", "loss_mask")))
        logp, logp_old, loss_mask = gathered
        offsets = {name: whole[name] for name in ("cu_seqlens", "cu_groups")}
        loss = lockstep.torch.loss("dapo", credit, logp=logp, logp_old=logp_old, loss_mask=loss_mask, **offsets).loss
        loss.backward()
        # What each rank has of the gradient, put together.
        return [loss.item().hex(), hashlib.sha256(cp.gather(own.grad).numpy().tobytes()).hexdigest()]

    def short(group):
        cp = ContextParallel([0, 14], group)
        return refused(lambda: cp.gather(torch.zeros(cp.own_tokens - (rank == 1))))

    said = {"worlds": {}, "context": {}}
    for size in WORLDS:
        group = dist.new_group(list(range(size)))
        if rank < size:
            said["worlds"][size] = world(rank, size, group, arrays, lambda value: gather(value, group, size), lambda value: add(value, group))
            if size == 3:
                said["failures"] = gather(failures(rank, 2, group, arrays), group, size)
                said["short"] = gather(short(group), group, size)
    for size in (1, 2, 4, 7):
        group = dist.new_group(list(range(size)))
        if rank < size:
            said["context"][size] = [context(group, layout) for layout in ("zigzag", "contiguous")]
    # A group that does not begin with the first rank: its members have other numbers within.
    group = dist.new_group([4, 5, 6])
    last = gather(failures(rank, 5, group, arrays), group, 3) if rank >= 4 else None
    said["last"] = gather(last, None, RANKS)[6]
    if rank == 0:
        print(json.dumps(said), flush=True)
    dist.destroy_process_group()


def mpi():
    from mpi4py import MPI

    everyone = MPI.COMM_WORLD
    rank, said = everyone.Get_rank(), {"worlds": {}}
    for size in WORLDS:
        group = everyone.Split(0 if rank < size else MPI.UNDEFINED, rank)
        if rank < size:
            said["worlds"][size] = world(rank, size, group, dict, group.allgather, lambda value: group.allreduce(value))
            if size == 3:
                said["failures"] = group.gather(failures(rank, 2, group, dict))
    if rank == 0:
        assert "torch" not in sys.modules
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "mpi":
        mpi()
    else:
        from torch.multiprocessing import start_processes

        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        start_processes(gloo, (port,), nprocs=RANKS, start_method="fork")
