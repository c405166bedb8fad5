"""Writes the cases of verl that stand beside the others: what its own functions compute, in float64.

    pip install torch numpy && pip download --no-deps verl==0.9.1
    python golden/generate/verl.py verl-0.9.1-py3-none-any.whl golden/cases/verl

The functions are taken out of the wheel by themselves, so that verl's other dependencies are not needed.
"""

import ast
import gzip
import itertools
import json
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import torch

SEED = 11


def released(wheel, module, functions, names):
    """Functions of a module, and nothing else of it."""
    source = zipfile.ZipFile(wheel).read(module).decode()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name in functions:
            node.decorator_list = []
            exec("from __future__ import annotations\n" + ast.unparse(node), names)
    return names


def exact(values):
    """What binary32 holds exactly."""
    return values.astype(np.float32).astype(np.float64)


class Batch:
    """Padded to the right: a response is `lengths` long, and tokens inside it may be masked."""

    def __init__(self, draw, groups, longest):
        self.draw, self.groups, self.rows = draw, groups, sum(groups)
        self.shape = (self.rows, longest + 1)
        self.lengths = draw.integers(1, longest + 1, self.rows)
        self.mask = np.zeros(self.shape)
        for row, length in enumerate(self.lengths):
            self.mask[row, :length] = draw.random(length) < 0.9

    def pack(self, padded):
        return np.concatenate([row[:length] for row, length in zip(padded, self.lengths)]).tolist()

    def logps(self, mean=-1.5, spread=1.0):
        return torch.from_numpy(exact(np.minimum(self.draw.normal(mean, spread, self.shape), 0.0)))

    def inputs(self, **more):
        offsets = lambda counts: np.concatenate([[0], np.cumsum(counts)]).tolist()
        return {
            "cu_seqlens": offsets(self.lengths),
            "cu_groups": offsets(self.groups),
            "loss_mask": self.pack(self.mask.astype(int)),
            **{name: values.tolist() if len(values.shape) == 1 else self.pack(values) for name, values in more.items()},
        }


def rloo_vectorized(verl, draw):
    shapes = [([4, 4, 4], 8), ([2, 3, 1, 5], 6), ([1, 1, 1], 4), ([16, 8], 12)]
    graded = lambda n: exact(draw.normal(0.3, 1.5, n))
    binary = lambda n: draw.integers(0, 2, n).astype(np.float64)
    equal = lambda n: np.full(n, 0.75)
    for (groups, longest), rewards in itertools.product(shapes, (graded, binary, equal)):
        batch = Batch(draw, groups, longest)
        scores = rewards(batch.rows)
        token_rewards = torch.zeros(batch.shape, dtype=torch.float64)
        token_rewards[torch.arange(batch.rows), torch.from_numpy(batch.lengths - 1)] = torch.from_numpy(scores)
        index = np.repeat(np.arange(len(groups)), groups)
        compute = verl["compute_rloo_vectorized_outcome_advantage"]
        advantages, _ = compute(token_rewards, torch.from_numpy(batch.mask), index)
        yield {}, batch.inputs(rewards=scores), {"advantages": batch.pack(advantages.numpy())}


def dro(verl, draw):
    shapes, modes = [([4, 4], 9), ([3, 2, 1], 17)], ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"]
    for (groups, longest), mode, weighted in itertools.product(shapes, modes, (False, True)):
        batch = Batch(draw, groups, longest)
        beta = float(draw.choice([0.05, 0.5, 2.0]))
        old, advantage = batch.logps(), exact(draw.normal(0.0, 1.0, batch.rows))
        new = torch.from_numpy(exact(np.minimum(old.numpy() + draw.normal(0.0, 0.3, batch.shape), 0.0)))
        weights = torch.from_numpy(exact(draw.uniform(0.2, 2.0, batch.shape))) if weighted else None
        new.requires_grad_(True)
        loss, metrics = verl["compute_policy_loss_dro"](
            old_log_prob=old,
            log_prob=new,
            advantages=torch.from_numpy(advantage)[:, None].expand(batch.shape),
            response_mask=torch.from_numpy(batch.mask),
            loss_agg_mode=mode,
            config=SimpleNamespace(policy_loss=SimpleNamespace(dro_beta=beta), global_batch_info={}),
            rollout_is_weights=weights,
        )
        loss.backward()
        columns = {"logp_new": new.detach(), "logp_old": old, "seq_advantages": advantage}
        columns |= {"is_weights": weights} if weighted else {}
        expected = {
            "loss": loss.item(),
            "dloss_dlogp": batch.pack(new.grad.numpy()),
            "metrics": {"ppo_kl": metrics["actor/ppo_kl"]},
        }
        yield {"dro_beta": beta, "aggregation": mode}, batch.inputs(**columns), expected


def main(wheel, folder):
    masked = released(wheel, "verl/utils/torch_functional.py", {"masked_sum", "masked_mean"}, {"torch": torch})
    verl = {"torch": torch, "np": np, "verl_F": SimpleNamespace(**masked)}
    functions = {"agg_loss", "compute_policy_loss_dro", "compute_rloo_vectorized_outcome_advantage"}
    released(wheel, "verl/trainer/ppo/core_algos.py", functions, verl)
    for op, cases in {"advantage_rloo_vectorized": rloo_vectorized, "policy_loss_dro": dro}.items():
        head = json.dumps({"op": op, "source": "verl 0.9.1 in float64", "seed": SEED})
        cases = [
            json.dumps(dict(zip(("config", "inputs", "expected"), case)), separators=(",", ":"))
            for case in cases(verl, np.random.default_rng(SEED))
        ]
        text = head[:-1] + ', "cases": [\n' + ",\n".join(cases) + "\n]}\n"
        with open(f"{folder}/{op}.json.gz", "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0))


main(*sys.argv[1:])
