"""What type checkers are told: the committed stub of the native module says what the module has, and a strict program against the package checks."""

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import lockstep
from lockstep import _native

PACKAGE = Path(lockstep.__file__).parent
STUB = ast.parse((PACKAGE / "_native.pyi").read_text())


def parameters(function):
    names = function.args
    return [argument.arg for argument in (*names.posonlyargs, *names.args, *names.kwonlyargs) if argument.arg not in ("self", "cls")]


def of_runtime(function):
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def public(namespace):
    return {name for name in namespace if not name.startswith("_")}


def test_the_stub_has_the_modules_names_and_signatures():
    functions = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
    constants = {node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign)}
    assert public(vars(_native)) == public({*functions, *classes, *constants})
    for name, node in functions.items():
        assert parameters(node) == of_runtime(getattr(_native, name)), name
    for name, node in classes.items():
        own = getattr(_native, name)
        members = {member.name: member for member in node.body if isinstance(member, ast.FunctionDef)}
        assert public(members) == public(vars(own)), name
        if "__new__" in members:
            assert parameters(members["__new__"]) == of_runtime(own), name
        for member in public(members):
            runtime = vars(own)[member]
            kinds = {decorator.id for decorator in members[member].decorator_list if isinstance(decorator, ast.Name)}
            assert ("property" in kinds) == inspect.isgetsetdescriptor(runtime), (name, member)
            if "property" not in kinds:
                assert parameters(members[member]) == of_runtime(getattr(own, member)), (name, member)


def test_a_strict_program_checks(tmp_path):
    assert (PACKAGE / "py.typed").exists()
    program = Path(__file__).with_name("typed.py")
    # An installed package is found by its py.typed; one in the source tree by the path.
    path = {} if "site-packages" in str(PACKAGE) else {"MYPYPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}", program]
    checked = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **path})
    assert checked.returncode == 0, checked.stdout + checked.stderr
