"""Forward and backward of PPO's clipped loss: Lockstep's operator, eager torch, torch.compile. Microseconds, the best of many, in one run.

    python python/benches/loss.py [THREADS]
"""

import sys
import time

import torch

import lockstep.torch

torch.set_num_threads(int((sys.argv[1:] or ["1"])[0]))


def batch(rows, width):
    torch.manual_seed(0)
    old = -2 * torch.rand(rows, width)
    new = (old + 0.1 * torch.randn(rows, width)).clamp(max=0).requires_grad_()
    mask = torch.rand(rows, width) > 0.1
    return new, old, torch.randn(rows), mask, torch.tensor([int(mask.sum()), rows, rows])


def ours(new, old, advantage, mask, counts, metrics=False):
    columns = dict(logp=new, logp_old=old, loss_mask=mask, counts=counts)
    return lockstep.torch.loss("ppo", advantage, metrics=metrics, **columns).loss


def measured(*arguments):
    return ours(*arguments, metrics=True)


def eager(new, old, advantage, mask, counts):
    ratio = (new - old).clamp(-20, 20).exp()
    advantage = advantage[:, None]
    loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
    return (loss * mask).sum() / counts[0]


def step(function, arguments):
    arguments[0].grad = None
    function(*arguments).backward()


def best(functions, arguments, seconds=2.0):
    """By turns, so that what else the machine does hits all of them."""
    times = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        for _ in range(20):
            step(function, arguments)
    end = time.perf_counter() + seconds * len(functions)
    while time.perf_counter() < end:
        for name, function in functions.items():
            for _ in range(10):
                start = time.perf_counter()
                step(function, arguments)
                times[name] = min(times[name], time.perf_counter() - start)
    return {name: 1e6 * took for name, took in times.items()}


for rows, width in ((4, 16), (8, 2048)):
    arguments = batch(rows, width)
    took = best({"lockstep": ours, "with metrics": measured, "eager": eager, "compile": torch.compile(eager)}, arguments)
    print(f"{rows} x {width}: " + ", ".join(f"{name} {us:.0f} us" for name, us in took.items()))
