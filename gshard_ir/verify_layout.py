"""Layout checks of local programs: each op turns the layouts of its operands into those of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gshard_ir.factors import Rule, Split, project, to_factors
from gshard_ir.ir import Attrs, Op
from gshard_ir.mesh import Mesh
from gshard_ir.opdef import OpDef, rule_of
from gshard_ir.sharding import REDUCTIONS, Layout, Sharding, nests
from gshard_ir.types import ShardedType, TensorType, same_array

Axes = tuple[str, ...]


class CheckError(Exception):
    """What does not hold; the verifier adds where."""


def check_layout(type_: ShardedType, mesh: Mesh) -> None:
    """Check one local type: axes that exist, more than one device along each, none used twice, the right shape."""
    layout = type_.layout
    if len(layout.dims) != len(type_.whole):
        raise CheckError(f"a layout of {len(layout.dims)} dims for a tensor of shape {list(type_.whole)}")
    used = [a for dim in layout.dims for a in dim] + [a for _, axes in layout.pending for a in axes]
    for axis in used:
        if axis not in mesh.names:
            raise CheckError(f"{type_}: the mesh has no axis {axis}")
        if mesh.size(axis) == 1:
            raise CheckError(f"{type_}: axis {axis} has size 1, which splits nothing")
        if used.count(axis) > 1:
            raise CheckError(f"{type_}: axis {axis} is used twice")
    kinds = [kind for kind, _ in layout.pending]
    if kinds != [kind for kind in REDUCTIONS if kind in kinds]:
        raise CheckError(f"{type_}: pending reductions {kinds} are not distinct and in the order of {REDUCTIONS}")
    for kind, axes in layout.pending:
        if not axes or axes != mesh.order(axes):
            raise CheckError(f"{type_}: axes of the pending {kind} are not in mesh order")
    if type_.shape != (local := layout.local_shape(type_.whole, mesh)):
        raise CheckError(f"{type_}: one device holds {list(type_.shape)}, the layout says {list(local)}")


def check_pin(type_: ShardedType, pin: Sharding, mesh: Mesh) -> None:
    """Check that a layout honours what a signature asks for."""
    for d, (dim, axes) in enumerate(zip(pin.dims, type_.layout.dims, strict=True)):
        asked = tuple(a for ref in dim.axes for a in mesh.expand(ref))
        if axes != asked and not (dim.open and axes[: len(asked)] == asked):
            raise CheckError(f"dim {d} of {type_} is not what the signature asks for: {dim.show(type_.whole[d])}")
    banned = {a for ref in pin.forbidden for a in mesh.expand(ref)}
    if banned & type_.layout.axes:
        raise CheckError(f"{type_} is split over a forbidden axis")


def check_local_op(op: Op, record: OpDef, inferred: Sequence[TensorType], mesh: Mesh) -> None:
    """Check one op of a local program, whose operands and attributes are known to be in order."""
    for axis in _named_axes(op.attrs):
        if axis not in mesh.names or mesh.size(axis) == 1:
            raise CheckError(f"{op.name} over {axis}, which is no axis of more than one device")
    if (moved := MOVES.get(op.name)) is not None:
        source, target = op.operands[0].type, op.result.type
        if not isinstance(source, ShardedType) or not isinstance(target, ShardedType):
            raise CheckError(f"{op.name} moves {source} to {target}, and one of them has no layout")
        wanted = moved(source, op.attrs, mesh)
        if (target.dtype, target.whole) != (source.dtype, source.whole):
            raise CheckError(f"{op.name} of {source} cannot be {target}")
        if target.layout != wanted:
            raise CheckError(f"{op.name} turns {source} into {wanted.show(source.whole)}, the result says {target}")
        return
    for found, stated in zip(inferred, (v.type for v in op.results), strict=True):
        if not same_array(found, stated):
            local = TensorType(stated.dtype, stated.shape)
            raise CheckError(f"{op.name}: one device computes {found}, the result says {local} ({stated})")
    if record.rule is not None:
        _check_rule(op, record, mesh)


def _named_axes(attrs: Attrs) -> Axes:
    axes = attrs.get("axes", ())
    return tuple(a for a in axes if isinstance(a, str)) if isinstance(axes, tuple) else ()


# What each op that moves data does to a layout: (operand type, attributes, mesh) -> layout of the result.


def _axes(attrs: Attrs) -> Axes:
    return _named_axes(attrs)


def _dim(attrs: Attrs, name: str = "dim") -> int:
    value = attrs[name]
    assert isinstance(value, int)
    return value


def _appended(type_: ShardedType, layout: Layout, dim: int, axes: Axes, mesh: Mesh) -> Layout:
    """Split a dim further, at its minor end."""
    if used := sorted(set(axes) & layout.axes):
        raise CheckError(f"dim {dim} of {type_} cannot be split over {used[0]}, which is in use")
    _nest(type_, dim, layout.dims[dim], axes, mesh)
    return layout.with_dim(dim, layout.dims[dim] + axes)


def _removed(type_: ShardedType, layout: Layout, dim: int, axes: Axes, mesh: Mesh) -> Layout:
    """Take the minor axes off a dim."""
    outer, inner = layout.dims[dim][: -len(axes)], layout.dims[dim][-len(axes) :]
    if inner != axes:
        raise CheckError(f"the minor axes of dim {dim} of {type_} are not {', '.join(axes)}")
    _nest(type_, dim, outer, inner, mesh)
    return layout.with_dim(dim, outer)


def _nest(type_: ShardedType, dim: int, outer: Axes, inner: Axes, mesh: Mesh) -> None:
    if not nests(type_.whole[dim], mesh.size(outer), mesh.size(inner)):
        raise CheckError(
            f"dim {dim} of {type_}: {type_.whole[dim]} rows over {mesh.size(outer)} and then over {mesh.size(inner)} "
            "devices are other chunks than over all of them"
        )


def _reduced(type_: ShardedType, attrs: Attrs, mesh: Mesh) -> Layout:
    kind, axes = str(attrs["kind"]), _axes(attrs)
    owed = dict(type_.layout.pending).get(kind, ())
    if missing := [a for a in axes if a not in owed]:
        raise CheckError(f"{type_} owes no {kind} over {missing[0]}")
    return type_.layout.with_pending(kind, [a for a in owed if a not in axes], mesh)


def _reduce_scatter(type_: ShardedType, attrs: Attrs, mesh: Mesh) -> Layout:
    return _appended(type_, _reduced(type_, attrs, mesh), _dim(attrs), _axes(attrs), mesh)


def _all_gather(type_: ShardedType, attrs: Attrs, mesh: Mesh) -> Layout:
    return _removed(type_, type_.layout, _dim(attrs), _axes(attrs), mesh)


def _all_to_all(type_: ShardedType, attrs: Attrs, mesh: Mesh) -> Layout:
    gathered = _removed(type_, type_.layout, _dim(attrs, "concat_dim"), _axes(attrs), mesh)
    return _appended(type_, gathered, _dim(attrs, "split_dim"), _axes(attrs), mesh)


def _permute(type_: ShardedType, attrs: Attrs, mesh: Mesh) -> Layout:
    source, target = attrs["source"], attrs["target"]
    assert isinstance(source, Layout) and isinstance(target, Layout)
    if source != type_.layout:
        raise CheckError(f"permute from {source.show(type_.whole)} of {type_}")
    if [mesh.size(d) for d in source.dims] != [mesh.size(d) for d in target.dims] or source.pending != target.pending:
        raise CheckError(f"permute from {source.show(type_.whole)} to {target.show(type_.whole)}: the shards differ")
    return target


def _shard_slice(type_: ShardedType, attrs: Attrs, mesh: Mesh) -> Layout:
    return _appended(type_, type_.layout, _dim(attrs), _axes(attrs), mesh)


def _mask_leader(type_: ShardedType, attrs: Attrs, mesh: Mesh) -> Layout:
    if used := sorted(set(_axes(attrs)) & type_.layout.axes):
        raise CheckError(f"{type_} is not the same on all devices along {used[0]}")
    return type_.layout.with_pending("sum", (*dict(type_.layout.pending).get("sum", ()), *_axes(attrs)), mesh)


def _mask_padding(type_: ShardedType, attrs: Attrs, _mesh: Mesh) -> Layout:
    dim = _dim(attrs)
    if (type_.layout.dims[dim], type_.whole[dim]) != (_axes(attrs), attrs["size"]):
        raise CheckError(f"dim {dim} of {type_} is not {attrs['size']} rows over {', '.join(_axes(attrs))}")
    return type_.layout


MOVES: Mapping[str, Callable[[ShardedType, Attrs, Mesh], Layout]] = {
    "all_reduce": _reduced,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "permute": _permute,
    "shard_slice": _shard_slice,
    "mask_leader": _mask_leader,
    "mask_padding": _mask_padding,
}


# Every other op is checked against its factor rule.


def _check_rule(op: Op, record: OpDef, mesh: Mesh) -> None:
    """Check a computing op; one that touches scratch data is part of a longer local form and is not checked here."""
    sharded = [v.type for v in (*op.operands, *op.results)]
    if not all(isinstance(t, ShardedType) for t in sharded):
        return
    types = [t for t in sharded if isinstance(t, ShardedType)]
    attrs = _global_attrs(op, types)
    wholes = [TensorType(t.dtype, t.whole) for t in types]
    inputs, outputs = tuple(wholes[: len(op.operands)]), tuple(wholes[len(op.operands) :])
    if record.infer(inputs, attrs) != outputs:
        found = ", ".join(map(str, record.infer(inputs, attrs)))
        raise CheckError(f"{op.name} makes {found} of the whole tensors, the result says {types[-1]}")
    rule = rule_of(op.name, inputs, attrs)
    split = _split(rule, types, mesh)
    for i, (dims, type_) in enumerate(zip((*rule.operands, *rule.results), types, strict=True)):
        if project(dims, split) != type_.layout.dims:
            wanted = Layout(project(dims, split), type_.layout.pending).show(type_.whole)
            what = f"operand {i}" if i < len(op.operands) else f"result {i - len(op.operands)}"
            raise CheckError(f"{op.name} ({rule.show()}): {what} is {type_}, the other tensors ask for {wanted}")
    for factor, axes in zip(rule.factors, split, strict=True):
        if axes and factor.mark not in ("pass", "reduce"):
            raise CheckError(
                f"{op.name}: factor {factor.name} ({factor.mark}) is split over {', '.join(axes)} as it is"
            )
    if axes := _counted(op, types[-1].layout):
        raise CheckError(f"{op.name} takes no account of which shard over {', '.join(axes)} it makes")
    _check_pending(op, rule, split, types, mesh)


def _global_attrs(op: Op, types: Sequence[ShardedType]) -> Attrs:
    """Undo ``localize``: put global sizes where attributes hold local ones."""
    attrs = dict(op.attrs)
    if "shape" in attrs:
        attrs["shape"] = types[-1].whole
    if op.name == "slice":
        limits = attrs["limits"]
        assert isinstance(limits, tuple)
        attrs["limits"] = tuple(
            whole if limit == local else limit
            for limit, local, whole in zip(limits, types[0].shape, types[0].whole, strict=True)
        )
    return attrs


def _split(rule: Rule, types: Sequence[ShardedType], mesh: Mesh) -> Split:
    split: list[Axes] = [()] * len(rule.factors)
    for dims, type_ in zip((*rule.operands, *rule.results), types, strict=True):
        for factor, axes in to_factors(rule, dims, type_.layout, mesh).items():
            split[factor] = split[factor] or axes
    return tuple(split)


def _counted(op: Op, layout: Layout) -> Axes:
    """Axes that an op whose values depend on the global position is split over."""
    if op.name == "uniform":
        return tuple(a for dim in layout.dims for a in dim)
    return layout.dims[_dim(op.attrs, "axis")] if op.name == "iota" else ()


def _check_pending(op: Op, rule: Rule, split: Split, types: Sequence[ShardedType], mesh: Mesh) -> None:
    """Check that pending sums pass only where the op is linear, and that split reductions are owed."""
    owed: dict[str, list[str]] = {}
    for factor, axes in zip(rule.factors, split, strict=True):
        if axes and factor.mark == "reduce":
            owed.setdefault(factor.combine, []).extend(axes)
    passing: dict[tuple[str, str], set[int]] = {}
    for i, type_ in enumerate(types[: len(op.operands)]):
        for kind, pending in type_.layout.pending:
            for axis in pending:
                passing.setdefault((kind, axis), set()).add(i)
    for (kind, axis), operands in passing.items():
        if kind != "sum" or operands not in rule.linear:
            which = ", ".join(map(str, sorted(operands)))
            raise CheckError(f"{op.name} is not linear in operand {which}, which owes a {kind} over {axis}")
        if any(axis in type_.layout.axes for i, type_ in enumerate(types[: len(op.operands)]) if i not in operands):
            raise CheckError(f"{op.name}: a sum over {axis} is owed while another operand is split over it")
        owed.setdefault(kind, []).append(axis)
    for type_ in types[len(op.operands) :]:
        wanted = Layout(type_.layout.dims)
        for kind in REDUCTIONS:
            wanted = wanted.with_pending(kind, owed.get(kind, ()), mesh)
        if wanted != type_.layout:
            raise CheckError(f"{op.name}: the result is {wanted.show(type_.whole)}, found {type_}")
