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
    from lockstep import logits, vocab_parallel
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
        try:
            cp.cut(torch.zeros(15))
        except lockstep.Error as error:
            assert str(error) == "`whole` has shape [15]: expected [14], the tokens of all ranks"
        else:
            raise AssertionError("a column that is too long was cut")
        return refused(lambda: cp.gather(torch.zeros(cp.own_tokens - (rank == 1))))

    def context_disagreements(group):
        """What each of two ranks sees where its tensors or its layout are others than the other's."""
        ones, second = torch.ones(4), rank == 1
        columns = [
            [ones.int() if second else ones], [ones.double() if second else ones], [ones] * (1 + rank),
            [ones, ones.to("meta") if second else ones], [ones.to_sparse() if second else ones],
        ]  # fmt: skip
        seen = []
        for offsets, layout, own in [
            *(([0, 8], "zigzag", own) for own in columns), ([0, 8], "contiguous" if second else "zigzag", [ones]), ([0, 8] if second else [0, 4, 8], "zigzag", [ones]),
        ]:  # fmt: skip
            try:
                ContextParallel(offsets, group, layout).gather(*own)
            except lockstep.Error as error:
                seen.append([str(error), error.argument])
        cp, own = ContextParallel([0, 8], group), torch.ones(4, requires_grad=True)
        gradient = torch.autograd.grad(cp.gather(own).square().sum(), own, create_graph=True)[0]
        try:
            gradient.sum().backward()
        except RuntimeError as error:
            seen.append(str(error))
        return seen

    def odd_exceptions(group):
        """What this rank sees of another's exception that has no text and an attribute that cannot be sent."""
        class Odd(Exception):
            argument = staticmethod(lambda: None)

            def __str__(self):
                raise RuntimeError("no text")

        def fails():
            raise Odd

        return refused(lambda: distributed.reduce(fails if rank == 1 else lockstep.Totals(), group))

    def vocab(group, size, dtype, inplace):
        """Digest of results and gradient with the vocabulary spread over the ranks of a group, the last of them with padding."""
        draw = torch.Generator().manual_seed(0)
        values, labels = 3 * torch.randn(20, 501, generator=draw), torch.randint(0, 501, (20,), generator=draw)
        width = -(-501 // size)
        padded = torch.nn.functional.pad(values, (0, width * size - 501), value=float("-inf")).to(dtype)
        own = padded[:, rank * width : (rank + 1) * width].clone().requires_grad_()
        mask = torch.arange(20) != 7
        out = vocab_parallel.statistics(own, labels, group=group, entropy=True, temperature=0.7, mask=mask, inplace_backward=inplace)
        (out.logp * torch.linspace(-1, 1, 20) + out.entropy).sum().backward()
        parts = torch.cat(gather(own.grad, group, size), 1)[:, :501].contiguous()
        # With the gradient of one rank the digest is that of lockstep.logits, but for rounding.
        alone = logits.statistics(values.to(dtype), labels, entropy=True, temperature=0.7, mask=mask)
        assert all(torch.allclose(a, b, rtol=3e-7, atol=0) for a, b in zip(out, alone))
        return hashlib.sha256(b"".join(x.detach().view(torch.uint8).numpy().tobytes() for x in (*out, parts))).hexdigest()

    def vocab_failures(group, size):
        """What this rank sees for a NaN on one rank, for a label that no rank has, and for what is wrong with the arguments of one rank alone."""
        values, labels = torch.zeros(3, 4), torch.tensor([0, 5, 2])
        bad = values.clone()
        if rank == 1:
            bad[2, 1] = float("nan")
        seen = []
        calls = [(bad, labels), (values, labels + size * 4 - 5), (values if rank else values[:, :0], labels), (values.long() if rank else values, labels)]
        calls += [(values, wrong if rank else labels) for wrong in (labels.double(), labels[:2], labels.tolist())]
        for z, tokens in calls:
            try:
                vocab_parallel.statistics(z, tokens, group=group)
            except lockstep.Error as error:
                seen.append([type(error).__name__, str(error)])
        return seen

    def vocab_parts(group, cuts):
        """Parts of different widths, in the order of ranks and in reverse with `vocab_start`, are the whole vocabulary."""
        values, labels = torch.linspace(-3, 3, 20).view(2, 10).sin(), torch.tensor([9, 2])
        want = logits.statistics(values, labels, entropy=True)
        at = len(cuts) - 2 - rank
        for part, start in (((cuts[rank], cuts[rank + 1]), None), ((cuts[at], cuts[at + 1]), cuts[at])):
            own = values[:, slice(*part)].clone().requires_grad_()
            out = vocab_parallel.statistics(own, labels, group=group, entropy=True, vocab_start=start)
            assert all(torch.allclose(a, b, rtol=3e-7, atol=0) for a, b in zip(out, want))
            out.logp.sum().backward()
            of = values.clone().requires_grad_()
            logits.statistics(of, labels).logp.sum().backward()
            assert torch.allclose(own.grad, of.grad[:, slice(*part)], rtol=1e-6, atol=1e-7)

    def vocab_disagreements(group):
        """What this rank sees where an argument differs on two ranks."""
        values, labels, seen = torch.zeros(3, 4), torch.tensor([0, 5, 2]), []
        calls = [
            dict(logits=torch.zeros(3 + rank, 4), labels=torch.zeros(3 + rank, dtype=torch.long)),
            dict(entropy=rank == 1), dict(temperature=1.0 - rank / 2), dict(vocab_start=3 * rank), dict(vocab_start=5 * rank),
            dict(vocab_start=4 if rank else None), dict(vocab_start=0.5),
        ]  # fmt: skip
        for call in calls:
            try:
                vocab_parallel.statistics(**{**dict(logits=values, labels=labels, group=group), **call})
            except lockstep.Error as error:
                seen.append([str(error), error.argument])
        return seen

    def vocab_twice(group):
        own = torch.zeros(2, 4, requires_grad=True)
        logp = vocab_parallel.statistics(own, torch.tensor([0, 1]), group=group).logp
        try:
            torch.autograd.grad(logp.sum(), own, create_graph=True)[0].sum().backward()
        except RuntimeError as error:
            return str(error)

    said = {"worlds": {}, "context": {}, "vocab": {}}
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
            types = (torch.float32, torch.bfloat16, torch.float16)
            said["vocab"][size] = [vocab(group, size, dtype, inplace) for dtype in types for inplace in (False, True)]
            if size == 2:
                said["vocab failures"] = gather(vocab_failures(group, size), group, size)
                said["vocab twice"] = vocab_twice(group)
                said["context disagreements"] = gather(context_disagreements(group), group, size)
                said["odd"] = gather(odd_exceptions(group), group, size)
                said["vocab disagreements"] = gather(vocab_disagreements(group), group, size)
                vocab_parts(group, [0, 2, 10])
                vocab_parts(group, [0, 7, 10])
            if size == 4:
                vocab_parts(group, [0, 1, 6, 8, 10])
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
