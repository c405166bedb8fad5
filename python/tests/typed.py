"""A program against the package under `mypy --strict`; `test_stubs.py` runs the checker. An ignored line is an error that it must find."""

from typing import Any, assert_type

import numpy as np
import torch

import lockstep
import lockstep.torch
from lockstep import logits, moe, routing, tree


def whole(model: torch.nn.Module, tokens: torch.Tensor, values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    columns: dict[str, Any] = {"logp": np.zeros((2, 3), np.float32), "logp_old": np.zeros((2, 3), np.float32)}
    credit = lockstep.advantages("dapo", rewards=[1.0, 0.0], **columns)
    assert_type(credit, lockstep.Credit)
    assert_type(lockstep.loss("dapo", credit, **columns).metrics, dict[str, float])
    assert_type(lockstep.explain({"extends": "dapo"}), str)
    lockstep.loss(3, credit)  # type: ignore[arg-type]

    out = logits.statistics(values, labels, entropy=True, temperature=0.7)
    assert_type(out.logp, torch.Tensor)
    logits.statistics(values, labels, 0.7)  # type: ignore[call-arg]
    loss = lockstep.torch.loss("dapo", torch.ones(2), logp=out.logp)
    assert_type(loss.loss, torch.Tensor)

    with torch.no_grad(), moe.record(model) as taken:
        model(tokens)
    recorded = taken.trace()
    assert_type(recorded, routing.RoutingTrace)
    assert_type(recorded.tokens, int)
    recorded.append_absent("1")  # type: ignore[arg-type]
    with moe.replay(model, recorded) as ran:
        model(tokens)
    print(routing.mismatch(ran.trace(), recorded)["router_fraction"])
    weights, ids = routing.gates(values, labels, top_k=2)
    assert_type(weights, torch.Tensor)
    assert_type(tree.prefix_tree([[1, 2]], [1.0]).nodes()[0].sequences, list[int])
    try:
        routing.trace(np.zeros((1, 1, 1), np.int64), 0)
    except lockstep.Error as refused:
        assert_type(refused.argument, str | None)
    return loss.loss
