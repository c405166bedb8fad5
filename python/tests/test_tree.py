"""Prefix trees: against one built with dictionaries, against TEMPO's recipe, and against `lockstep tree`."""

import os
import re
import subprocess

import numpy as np
import pytest
from test_recipes import as_torch

import lockstep
from lockstep import tree

BINARY = os.environ.get("LOCKSTEP_BIN")


def batch(groups=3, size=6, length=7, seed=0):
    """Responses over three ids, so that many share a prefix, of lengths that differ."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, length + 1, groups * size)
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype("u4")
    tokens = random.integers(0, 3, cu_seqlens[-1]).astype("u4")
    rewards = random.integers(0, 2, groups * size).astype("f4")
    return dict(tokens=tokens, rewards=rewards, cu_seqlens=cu_seqlens), size


def by_hand(tokens, rewards, cu_seqlens, size):
    """Each branch as (group, prefix): its responses; by dictionaries."""
    words = [tuple(tokens[a:b]) for a, b in zip(cu_seqlens, cu_seqlens[1:])]
    branches, passing = {}, {}
    for s, word in enumerate(words):
        for depth in range(len(word) + 1):
            passing.setdefault((s // size, word[:depth]), []).append(s)
    for (group, prefix), members in passing.items():
        ways = {words[s][len(prefix)] if len(words[s]) > len(prefix) else None for s in members}
        if len(ways) > 1:
            branches[group, prefix] = members
    value = {key: np.mean([float(rewards[s]) for s in members]) for key, members in passing.items()}
    corrections = []
    for s, word in enumerate(words):
        for depth in range(len(word)):
            before = (s // size, word[:depth])
            last = max((d for d in range(depth + 1) if (s // size, word[:d]) in branches), default=None)
            after = value[s // size, word[: depth + 1]]
            corrections.append(after - value[before] if last == depth else 0.0)
    return branches, value, np.array(corrections)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("seed", range(4))
def test_the_tree_is_that_of_dictionaries(seed, kind):
    columns, size = batch(seed=seed)
    branches, value, corrections = by_hand(**columns, size=size)
    given = columns if kind == "numpy" else as_torch(columns)
    found = tree.prefix_tree(**given, group_size=size)
    words = [tuple(columns["tokens"][a:b]) for a, b in zip(columns["cu_seqlens"], columns["cu_seqlens"][1:])]
    got = {}
    for node in found.nodes():
        first = node.sequences[0]
        key = (first // size, words[first][: node.depth])
        got[key] = sorted(node.sequences)
        assert node.value == pytest.approx(value[key], abs=1e-12) and node.counted == len(node.sequences)
        above = [parent for parent in branches if parent[0] == key[0] and len(parent[1]) < node.depth and key[1][: len(parent[1])] == parent[1]]
        if above:
            parent = found.nodes()[node.parent]
            assert parent.depth == max(len(prefix) for _, prefix in above)
        else:
            assert node.parent == -1
    assert got == branches and found.branches == len(branches)
    np.testing.assert_allclose(np.asarray(found.token_advantage), corrections, atol=1e-7)
    distinct = {(s // size, word[: depth + 1]) for s, word in enumerate(words) for depth in range(len(word))}
    assert found.tree_tokens == len(distinct) and found.tokens == len(columns["tokens"])


def test_with_grpos_statistics_it_is_tempo():
    columns, size = batch(seed=9)
    credit = lockstep.advantages("tempo", **columns, group_size=size)
    groups = columns["rewards"].astype("f8").reshape(-1, size)
    std = groups.std(1, ddof=1)
    own = ((groups - groups.mean(1, keepdims=True)) / (std[:, None] + 1e-6)).ravel()
    found = tree.prefix_tree(**columns, group_size=size, advantage=own.astype("f4"), std=std.astype("f4"), eps=1e-6)
    np.testing.assert_allclose(found.token_advantage, credit.advantage, atol=1e-6)
    assert np.abs(credit.advantage - own.repeat(np.diff(columns["cu_seqlens"]))).max() > 0.1


def test_responses_without_outcome_move_no_value():
    tokens, rewards = [[1, 2], [1, 3], [1, 4]], np.array([1.0, 0.0, np.nan], "f4")
    (node,) = tree.prefix_tree(tokens, rewards).nodes()
    assert (node.depth, node.value, node.counted, node.sequences) == (1, 0.5, 2, [0, 1, 2])
    (node,) = tree.prefix_tree(tokens, [1.0, 0.0, 1.0], valid=[1, 0, 1]).nodes()
    assert (node.value, node.counted) == (1.0, 2)
    (node,) = tree.prefix_tree(tokens, [1.0, 0.0, 1.0], weights=np.array([1, 2, 1], "f4")).nodes()
    assert node.value == 0.5


@pytest.mark.skipif(not BINARY, reason="LOCKSTEP_BIN names no binary")
def test_the_command_line_says_the_same(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    columns, size = batch(groups=2, seed=5)
    offsets = np.array([0, size, 2 * size], "u4")
    safetensors.save_file({**columns, "cu_groups": offsets}, tmp_path / "rollouts.safetensors")
    cut = columns["cu_seqlens"][size]
    said = subprocess.run([BINARY, "tree", tmp_path / "rollouts.safetensors", "--group", "1"], check=True, capture_output=True, text=True).stdout
    own = {"tokens": columns["tokens"][cut:], "rewards": columns["rewards"][size:], "cu_seqlens": columns["cu_seqlens"][size:] - cut}
    found = tree.prefix_tree(**own)
    shared = 100 * found.shared_tokens / found.tokens
    head = f"{size} responses, {found.tokens} tokens, {shared:.1f} % of them shared, {found.tree_tokens} in the tree, {found.branches} branches"
    assert head in said
    lines = re.findall(r"\d+\.\.(\d+)  V (\S+)  n (\d+)", said)
    nodes = {(node.depth, f"{node.value:.4f}", node.counted) for node in found.nodes()}
    # A line with several responses ends where they part, or where equal ones end.
    assert nodes <= {(int(end), value, int(n)) for end, value, n in lines} and len(nodes) > 2


def test_what_is_wrong_is_named():
    columns, size = batch()
    with pytest.raises(lockstep.Error, match=r"`rewards`\[3\]") as refused:
        rewards = columns["rewards"].copy()
        rewards[3] = np.inf
        tree.prefix_tree(**{**columns, "rewards": rewards}, group_size=size)
    assert (refused.value.argument, refused.value.index) == ("rewards", 3)
    with pytest.raises(lockstep.Error, match="rewards"):
        tree.prefix_tree(**{**columns, "rewards": columns["rewards"][:-1]}, group_size=size)
    with pytest.raises(lockstep.Error, match="weights"):
        tree.prefix_tree([[1, 2], [1, 3]], [0.0, 1.0], weights=np.array([1, -1], "f4"))
    pair = [[1, 2], [1, 3]], [0.0, 1.0]
    for name, wrong in (("weights", [1, 2]), ("weights", [[1.0, 2.0]]), ("advantage", [[1.0], [2.0]]), ("std", [[1.0]]), ("pad", -1)):
        with pytest.raises(lockstep.Error, match=f"`{name}`") as refused:
            tree.prefix_tree(*pair, **{name: wrong})
        assert refused.value.argument == name
    for wrong in (dict(std=[np.nan]), dict(std=[-1.0]), dict(advantage=[0.0, np.nan])):
        with pytest.raises(lockstep.Error, match=f"`{min(wrong)}`") as refused:
            tree.prefix_tree(*pair, **wrong)
        assert refused.value.index == len(*wrong.values()) - 1
    with pytest.raises(lockstep.Error, match="cu_seqlens"):
        tree.prefix_tree([1, 2, 3], [1.0])
