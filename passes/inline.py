"""Replace every call by the body of the def that it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gshard_ir.errors import fail
from gshard_ir.ir import Module, Op, Region, Value
from gshard_ir.sharding import Sharding
from gshard_ir.source import Span

Moved = Callable[[Span | None], Span | None]


@dataclass(frozen=True)
class Inline:
    """The entry is the only function left and holds no ``call``.

    Spans grow the call stack by which each op is reached. A value that a call returns takes the
    caller's name for it. Layouts in the types of an inlined def become ``annotate`` ops. Raises
    :class:`~gshard_ir.errors.GShardError` when the result would have more than ``max_ops`` ops.
    """

    name: str = "inline"
    max_ops: int = 50_000

    def run(self, module: Module) -> Module:
        """Return the module with one, flat, function."""
        self._check_size(module)
        main = module.main
        body = _Inliner(module).flat(main.name)
        return Module(module.mesh, {module.entry: main.with_body(body)}, module.entry, module.local)

    def _check_size(self, module: Module) -> None:
        sizes: dict[str, int] = {}

        def size(name: str) -> int:
            if name not in sizes:
                ops = list(module.functions[name].body.walk())
                sizes[name] = len(ops) + sum(size(str(op.attrs["callee"])) for op in ops if op.name == "call")
            return sizes[name]

        if (total := size(module.entry)) > self.max_ops:
            raise fail(
                f"{module.entry} grows to {total:,} operations once its calls are inlined",
                module.main.span,
                f"the limit is {self.max_ops:,}",
                suggestion="unroll less: a def that calls another one twice doubles it",
            )


class _Inliner:
    """Flattens each function once; every call then gets a fresh copy of the flat body."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.done: dict[str, Region] = {}

    def flat(self, name: str) -> Region:
        if name not in self.done:
            body = self.module.functions[name].body
            self.done[name] = _Copy({}, lambda span: span, self).region(body, fresh=False)
        return self.done[name]


class _Copy:
    """Copies a region: operands renamed by ``env``, spans mapped by ``moved``, calls expanded."""

    def __init__(self, env: dict[Value, Value], moved: Moved, inliner: _Inliner) -> None:
        self.env, self.moved, self.inliner = env, moved, inliner

    def region(self, region: Region, *, fresh: bool) -> Region:
        params = tuple(self.value(v, v.hint) for v in region.params) if fresh else region.params
        ops = self.ops(region.ops, fresh=fresh, hints={})
        return Region(params, ops, tuple(self.env.get(v, v) for v in region.results))

    def ops(self, ops: tuple[Op, ...], *, fresh: bool, hints: dict[Value, str]) -> tuple[Op, ...]:
        out: list[Op] = []
        for op in ops:
            if op.name == "call":
                out += self.expand(op)
                continue
            results = tuple(self.value(v, hints.get(v, v.hint)) for v in op.results) if fresh else op.results
            operands = tuple(self.env.get(v, v) for v in op.operands)
            regions = tuple(self.region(r, fresh=fresh) for r in op.regions)
            out.append(Op(op.name, operands, results, op.attrs, regions, self.moved(op.span)))
        return tuple(out)

    def value(self, value: Value, hint: str) -> Value:
        new = Value(value.type, hint, self.moved(value.span))
        self.env[value] = new
        return new

    def expand(self, call: Op) -> list[Op]:
        """Return the callee's ops and bind the results of ``call`` to the values that it returns."""
        callee = self.inliner.module.functions[str(call.attrs["callee"])]
        body = self.inliner.flat(callee.name)
        site = self.moved(call.span)

        chains: dict[int, Span] = {}  # the ops of one call share its call stack: it is moved once

        def moved(span: Span | None) -> Span | None:
            if span is None or site is None:
                return span or site
            if span.caller is None:
                return span.called_from(site, callee.name)
            key = id(span.caller)
            if key not in chains:
                chains[key] = span.caller.called_from(site, callee.name)
            return replace(span, caller=chains[key])

        inner = _Copy({}, moved, self.inliner)
        out: list[Op] = []
        for param, name, pin, arg in zip(
            callee.params, callee.param_names, callee.param_shardings, call.operands, strict=True
        ):
            inner.env[param] = _pinned(self.env.get(arg, arg), pin, name, param.hint, moved(param.span), out)
        hints: dict[Value, str] = {}
        for result, value in zip(call.results, body.results, strict=True):
            if result.hint:
                hints.setdefault(value, result.hint)
        out += inner.ops(body.ops, fresh=True, hints=hints)
        for result, value, pin in zip(call.results, body.results, callee.result_shardings, strict=True):
            returned = inner.env.get(value, value)
            self.env[result] = _pinned(returned, pin, "return", result.hint, moved(callee.span), out)
        return out


def _pinned(value: Value, pin: Sharding | None, what: str, hint: str, span: Span | None, out: list[Op]) -> Value:
    """Append the ``annotate`` that a layout in a type stands for; return the value to use from here on."""
    if pin is None or pin.says_nothing:
        return value
    pinned = replace(value, hint=hint, span=span)
    how = f"{what}: {value.dtype}{pin.show(value.shape)}"
    out.append(Op("annotate", (value,), (pinned,), {"sharding": pin, "how": how}, (), span))
    return pinned
