"""Log-probability and entropy of rows of logits on a GPU: Lockstep's operator, eager torch, torch.compile, and the Triton kernels of TRL and Liger if they are installed. Milliseconds of forward and of backward, the median of many, in one run, with the bandwidth of a copy.

    python python/benches/gpu.py [ROWS [VOCAB [TYPE…]]]
"""

import statistics
import sys

import torch
from logits import eager, in_place, ours

import lockstep.logits

ROWS, VOCAB = (int(word) for word in (*sys.argv[1:3], *("8192", "151936")[len(sys.argv) - 1 :]))
TYPES = [getattr(torch, name) for name in sys.argv[3:] or ("bfloat16", "float32", "float16")]


def ours_alone(logits, labels):
    return lockstep.logits.statistics(logits, labels).logp, None


def peers():
    try:
        from trl.kernels.logprob_entropy import selective_log_softmax_and_entropy

        yield "TRL", selective_log_softmax_and_entropy
    except ImportError as error:
        print(f"no TRL: {error}")
    try:
        from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

        # The gradient is computed in the forward pass, in place.
        yield "Liger, logp alone", lambda logits, labels: (
            -LigerCrossEntropyFunction.apply(logits, labels, None, -100, 0.0, 0.0, "none", None, False)[0], None,
        )  # fmt: skip
    except ImportError as error:
        print(f"no Liger: {error}")


def milliseconds(marks):
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in zip(marks, marks[1:])]


def mark():
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def step(function, logits, labels):
    """Milliseconds of the forward pass and of the backward pass. Only the graph is new: the values are the same."""
    own = logits.detach().requires_grad_()
    marks = [mark()]
    logp, entropy = function(own, labels)
    marks.append(mark())
    torch.autograd.grad((logp if entropy is None else logp - 0.1 * entropy).sum(), own)
    marks.append(mark())
    return milliseconds(marks)


def main():
    functions = {"Lockstep": ours, "Lockstep, logp alone": ours_alone, "eager": eager, "compile": torch.compile(eager, dynamic=False), **dict(peers())}
    functions["Lockstep, in place"] = in_place
    torch.manual_seed(0)
    labels = torch.randint(VOCAB, (ROWS,), device="cuda")
    print(torch.cuda.get_device_name(), f"torch {torch.__version__}", f"{ROWS} x {VOCAB}")
    for dtype in TYPES:
        logits = (3 * torch.randn(ROWS, VOCAB, device="cuda")).to(dtype)
        to = torch.empty_like(logits)
        copies = []
        for _ in range(10):
            marks = [mark()]
            to.copy_(logits)
            copies += milliseconds([*marks, mark()])
        copy = statistics.median(copies)
        print(f"{dtype!s:15} copy {copy:6.3f} ms, {2 * logits.nbytes / copy / 1e6:.0f} GB/s; one read is {copy / 2:.3f} ms")
        del to
        reference = eager(logits[:64], labels[:64])
        for name, function in functions.items():
            try:
                out = function(logits[:64].clone().requires_grad_(), labels[:64])
                worst = [f"{(mine.detach() - theirs).abs().max():.1e}" for mine, theirs in zip(out, reference) if mine is not None]
                # These overwrite their logits.
                own = logits.clone() if "in place" in name or "Liger" in name else logits
                times = [step(function, own, labels) for _ in range(12)][2:]
                forward, backward = map(statistics.median, zip(*times))
                print(f"{dtype!s:15} {name:20} forward {forward:7.3f}, backward {backward:7.3f} ms; off eager by {', '.join(worst)}", flush=True)
            except Exception as error:
                print(f"{dtype!s:15} {name:20} {type(error).__name__}: {error}", flush=True)
            torch.cuda.empty_cache()


main()
