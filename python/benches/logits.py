"""Log-probability and entropy of rows of logits, forward and backward: Lockstep's operator, eager torch, torch.compile. Nanoseconds a logit, the best of many, in one run.

    python python/benches/logits.py [THREADS [ROWS [VOCAB]]]
"""

import sys
import time

import torch

import lockstep.logits


def ours(values, labels):
    out = lockstep.logits.statistics(values, labels, entropy=True)
    return out.logp, out.entropy


def in_place(values, labels):
    out = lockstep.logits.statistics(values, labels, entropy=True, inplace_backward=True)
    return out.logp, out.entropy


def eager(values, labels):
    logp = torch.log_softmax(values.float(), -1)
    return logp.gather(1, labels[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def step(function, values, labels):
    """Seconds of the forward pass and of the backward pass. Only the graph is new: the values are the same."""
    own = values.detach().requires_grad_()
    start = time.perf_counter()
    logp, entropy = function(own, labels)
    middle = time.perf_counter()
    torch.autograd.grad((logp - 0.1 * entropy).sum(), own)
    return middle - start, time.perf_counter() - middle


def main():
    threads, rows, vocab = (int(word) for word in (*sys.argv[1:], *("2", "64", "151936")[len(sys.argv) - 1 :]))
    torch.set_num_threads(threads)
    functions = {"lockstep": ours, "eager": eager, "compile": torch.compile(eager, dynamic=False)}
    labels = torch.randint(vocab, (rows,))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        torch.manual_seed(0)
        values = (3 * torch.randn(rows, vocab)).to(dtype)
        times = {name: [float("inf")] * 2 for name in functions}
        for turn in range(12):
            for name, function in functions.items():
                took = step(function, values, labels)
                if turn > 1:
                    times[name] = [min(pair) for pair in zip(times[name], took)]
        # Overwrites its logits, so each turn has its own.
        took = [step(in_place, values.clone(), labels) for _ in range(4)]
        times["in place"] = [min(pair) for pair in zip(*took)]
        for name, (forward, backward) in times.items():
            per = 1e9 / (rows * vocab)
            print(f"{dtype!s:15} {name:9} forward {forward * per:6.2f}, backward {backward * per:6.2f} ns a logit")


if __name__ == "__main__":
    main()
