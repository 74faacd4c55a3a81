"""Ops that run other code."""

from __future__ import annotations

from typing import Any, NoReturn

from gshard_ir.errors import InternalError
from gshard_ir.ir import Attrs
from gshard_ir.opdef import OpDef, OpError, Types, define


def _infer(types: Types, attrs: Attrs) -> Types:
    if not isinstance(attrs["callee"], str):
        raise OpError(f"callee must be the name of a function, found {attrs['callee']!r}")
    return ()


def _reference(*arrays: Any, callee: str) -> NoReturn:
    raise InternalError(f"a call of {callee} is run by the interpreter, which knows its body")


define(
    OpDef(
        "call",
        ("args*",),
        attrs=("callee",),
        infer=_infer,
        reference=_reference,
        family="control",
        examples=((("f32[4]",), {"callee": "f"}),),
        doc="Run another function of the module. The caller states the result types, which are those of the callee.",
    )
)
