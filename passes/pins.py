"""Turn layouts asked of results into annotations, so that every pass sees one kind of demand."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gshard_ir.ir import Module, Op, Region, Value
from gshard_ir.sharding import Sharding


@dataclass(frozen=True)
class PinResults:
    """Every result of the entry whose type names a layout is the result of an ``annotate`` op."""

    name: str = "pin results"

    def run(self, module: Module) -> Module:
        """Return the module with annotations in front of its results."""
        main = module.main
        ops, results = list(main.body.ops), list(main.results)
        for i, (value, sharding) in enumerate(zip(results, main.result_shardings, strict=True)):
            if sharding is not None and not sharding.says_nothing:
                results[i] = _pinned(ops, value, sharding, main.result_names[i])
        body = Region(main.params, tuple(ops), tuple(results))
        silent = tuple(None for _ in results)
        return module.with_main(replace(main, body=body, result_shardings=silent))


def _pinned(ops: list[Op], value: Value, sharding: Sharding, name: str) -> Value:
    pinned = Value(value.type, value.hint or name, value.span)
    how = f"result {name}: {value.dtype}{sharding.show(value.shape)}"
    ops.append(Op("annotate", (value,), (pinned,), {"sharding": sharding, "how": how}, (), value.span))
    return pinned
