"""numba intrinsics for vectors of numbers in registers.

They serve kernels whose loops LLVM does not vectorize, since too many arrays might overlap. Each
operation rounds once, as in NumPy: nothing is fused or reordered.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel.models import PrimitiveModel
from numba.extending import intrinsic, overload, register_model


class Vector(types.Type):  # type: ignore[misc]
    """n numbers of a floating type."""

    def __init__(self, scalar: Any, n: int) -> None:
        self.scalar, self.n = scalar, n
        super().__init__(f"Vector({scalar}, {n})")


def _llvm(vector: Vector) -> Any:
    return ir.VectorType(ir.DoubleType() if vector.scalar.bitwidth == 64 else ir.FloatType(), vector.n)


@register_model(Vector)
class _Model(PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, _llvm(vector))


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: Vector) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), ir.PointerType(_llvm(vector)))


@intrinsic(prefer_literal=True)
def load(typing: Any, array: Any, index: Any, n: Any) -> Any:
    """Load n entries of a flat array from an index on."""
    vector = Vector(array.dtype, n.literal_value)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1], vector)
        found = builder.load(address)
        found.align = array.dtype.bitwidth // 8
        return found

    return vector(array, types.intp, n), build


@intrinsic
def store(typing: Any, array: Any, index: Any, vector: Any) -> Any:
    """Store a vector in a flat array from an index on."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1], vector)
        builder.store(arguments[2], address).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), build


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Request the cache line of an entry of a flat array, which may be beyond its end."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        request = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        # For reading, into every level of the cache, of data.
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(request, [address, *(ir.Constant(number, each) for each in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.intp), build


@intrinsic(prefer_literal=True)
def splat(typing: Any, number: Any, n: Any) -> Any:
    """Return a vector of n copies of a number."""
    vector = Vector(number, n.literal_value)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        undefined = ir.Constant(_llvm(vector), ir.Undefined)
        first = builder.insert_element(undefined, arguments[0], ir.Constant(ir.IntType(32), 0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), vector.n), [0] * vector.n)
        return builder.shuffle_vector(first, undefined, places)

    return vector(number, n), build


@intrinsic(prefer_literal=True)
def entry(typing: Any, vector: Any, place: Any) -> Any:
    """Return one entry of a vector."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_element(arguments[0], ir.Constant(ir.IntType(32), place.literal_value))

    return vector.scalar(vector, place), build


@intrinsic
def widened(typing: Any, vector: Any) -> Any:
    """Convert a vector to double precision."""
    double = Vector(types.float64, vector.n)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        same = vector.scalar.bitwidth == 64
        return arguments[0] if same else builder.fpext(arguments[0], _llvm(double))

    return double(vector), build


def _operation(name: str) -> Callable[..., Any]:
    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, name)(*arguments)

        return a(a, b), build

    return operation


def _choice(comparison: str) -> Callable[..., Any]:
    @intrinsic
    def choice(typing: Any, a: Any, b: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            # A NaN in a is returned.
            return builder.select(builder.fcmp_ordered(comparison, *arguments), arguments[1], arguments[0])

        return a(a, b), build

    return choice


maximum, minimum = _choice("<"), _choice(">")


def _overloaded(operation: Callable[..., Any]) -> Callable[..., Any]:
    def implementation(a: Any, b: Any) -> Any:
        def operate(a: Any, b: Any) -> Any:
            return operation(a, b)

        return operate if isinstance(a, Vector) and isinstance(b, Vector) else None

    return implementation


_OPERATORS = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv"}
for _symbol, _name in _OPERATORS.items():
    overload(_symbol)(_overloaded(_operation(_name)))
