"""The prefix tree of each group's responses: shared tokens, node values, per-token advantages (TEMPO).

>>> import lockstep.tree
>>> ab, ac, de = [7, 8], [7, 9], [5, 6]
>>> tree = lockstep.tree.prefix_tree([ab, ac, de], [1.0, 0.0, 0.0])
>>> for node in tree.nodes():
...     print(node.depth, round(node.value, 4), node.sequences)
0 0.3333 [2, 0, 1]
1 0.5 [0, 1]
>>> tree.branches, tree.shared_tokens, tree.tree_tokens
(2, 2, 5)
>>> tree.token_advantage.round(4)
array([[ 0.1667,  0.5   ],
       [ 0.1667, -0.5   ],
       [-0.3333,  0.    ]], dtype=float32)

Arrays are NumPy's or torch's, packed (`[N]` with `cu_seqlens`) or padded (`[B, T]`). Trees are built on the
CPU: tensors on a GPU are copied there, and the results back. docs/trees.md describes the method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from . import _device, _native
from .arrays import places
from .columns import Batch, Column, NumPy, error, library, on_host

__all__ = ["Node", "Tree", "prefix_tree"]

# Per-sequence results, and the types that the op writes.
_RESULTS = {"order": "u4", "lcp": "u4", "value": "f8", "counted": "u4", "node": "u4", "parent": "u4", "leaf": "u4"}
_NONE = 0xFFFF_FFFF


class Node(NamedTuple):
    """A point where responses branch, or where one ends on the path of another."""

    depth: int
    """Number of tokens that its responses share."""
    value: float
    """V: the (weighted) mean of their outcomes; NaN if there are none."""
    counted: int
    """Number of responses with an outcome."""
    parent: int
    """Index of the parent among the nodes; −1 at a root."""
    sequences: list[int]
    """Its responses, in lexicographic order of their tokens."""


@dataclass
class Tree:
    """Prefix trees of the groups of a batch.

    Arrays are `[S]`, int64 (`value` float64), with −1 for none and one entry per position: position p holds
    sequence `order[p]`, group after group, in lexicographic order.
    """

    order: Any
    """Sequence of each position."""
    lcp: Any
    """Number of tokens that each position shares with the previous one: the depth of its node."""
    value: Any
    """V of each position's node; V of the whole group at its first position."""
    counted: Any
    """Number of the node's responses with an outcome."""
    node: Any
    """The position that represents the node."""
    parent: Any
    """The position that represents the parent node."""
    leaf: Any
    """By sequence: the last branching node on its path."""
    token_advantage: Any
    """Per token: V after the token − V before it where responses branch, else 0; adjusted by `advantage`
    and `std`.
    """
    branches: int
    """Number of branching nodes, over all groups."""
    tokens: int
    """Number of tokens, N."""
    shared_tokens: int
    """Tokens that another response of the group also has at the same place of the same path."""
    tree_tokens: int
    """Number of tokens when shared ones count once."""
    depths: list[int]
    """Branches by depth: entry 0 before the first token, entry k at depth 2^(k−1) to 2^k − 1."""

    def nodes(self) -> list[Node]:
        """Returns the branching nodes in the order of their positions."""
        order, leaf = self.order.tolist(), self.leaf.tolist()
        node, parent = self.node.tolist(), self.parent.tolist()
        lcp, value, counted = self.lcp.tolist(), self.value.tolist(), self.counted.tolist()
        numbers = {at: number for number, at in enumerate(at for at, own in enumerate(node) if own == at)}
        found = [Node(lcp[at], value[at], counted[at], numbers.get(parent[at], -1), []) for at in numbers]
        for sequence in order:
            above = leaf[sequence]
            while above != -1:
                found[numbers[above]].sequences.append(sequence)
                above = parent[above]
        return found


def prefix_tree(
    tokens: Any,
    rewards: Any,
    *,
    cu_seqlens: Any = None,
    cu_groups: Any = None,
    group_size: int | None = None,
    loss_mask: Any = None,
    valid: Any = None,
    weights: Any = None,
    pad: int | None = None,
    advantage: Any = None,
    std: Any = None,
    eps: float = 0.0,
) -> Tree:
    """Builds the prefix tree of each group.

    `tokens` are ids, `[N]` with `cu_seqlens` `[S+1]`, or `[B, T]`; `rewards` `[S]` are NaN without an
    outcome. Responses to one prompt are adjacent: pass `cu_groups` or `group_size`; without either, all form
    one group. `valid` `[S]`: 0 excludes a response; `weights` `[S]` weight the values; `loss_mask` per token:
    0 earns nothing. `pad` is an id with which finished responses are assumed to continue, as in TEMPO's
    released code; with None, their end is an edge. `advantage` `[S]` is added to `token_advantage`, and `std`
    `[G]` plus `eps` divides the correction: with GRPO's, the result is TEMPO's advantage.

    Raises `lockstep.Error`: lengths that disagree, an infinite reward, a negative weight (argument, index).
    """
    given = dict(tokens=tokens, rewards=rewards, cu_seqlens=cu_seqlens, cu_groups=cu_groups, loss_mask=loss_mask, valid=valid)
    of: Any = library([*given.values(), weights, advantage, std])
    theirs = getattr(of, "torch", None)
    if theirs is not None:
        given = {name: None if value is None else on_host(value, theirs) for name, value in given.items()}
    batch, host = Batch(given, group_size), NumPy()
    arrays = dict(batch.arrays)
    for name, value, shape in (("weights", weights, "[S]"), ("advantage", advantage, "[S]"), ("std", std, "[G]")):
        array = None if value is None else host.cast(Column(-1, name, "f32", "", ""), on_host(value, theirs))
        if array is not None and array.ndim > 1:
            raise error(name, f" has shape {list(array.shape)}: expected {shape}")
        arrays[name] = array
    if pad is not None and not 0 <= pad < 1 << 32:
        raise error("pad", f" is {pad}: expected 0 to 4294967295, or None")
    if "tokens" not in batch.arrays or "rewards" not in batch.arrays:
        raise error("tokens" if "tokens" not in batch.arrays else "rewards", " is missing")
    count, sequences, _ = batch.size
    results = {name: host.np.empty(sequences, type_) for name, type_ in _RESULTS.items()}
    of_tokens = host.np.empty(count, "f4")
    found = _native.prefix_tree(_device("cpu", None), pad, eps, places(host, {**arrays, **results, "token_advantage": of_tokens}))

    def back(array: Any) -> Any:
        if array.dtype == "u4":
            array = host.np.where(array == _NONE, -1, array.astype("i8"))
        return array if theirs is None else theirs.from_numpy(array).to(of.device)

    branches, shared, in_tree, depths = found
    return Tree(
        **{name: back(array) for name, array in results.items()},
        token_advantage=back(batch.by_tokens(of_tokens)),
        branches=branches,
        tokens=count,
        shared_tokens=shared,
        tree_tokens=in_tree,
        depths=depths,
    )
