"""One property for each primitive: applied at random places of random computations, it changes no result, or refuses with a ScheduleError.

The schedule is lowered and interpreted; what it should give comes from a direct evaluation of the declaration (tests/te/evaluate.py). The fuzzer
(tests/fuzz.py) mixes all primitives and runs the C; here a failure names the primitive.
"""

import random
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import create_schedule, lower_schedule
from tilewright.schedule.scatter import chosen
from tilewright.schedule.trace import PRIMITIVES
from tilewright.tir.errors import ScheduleError, ScheduleWarning, TilewrightError
from tilewright.tir.expr import Load
from tilewright.tir.interp import interpret, iteration_count
from tilewright.tir.visit import loads_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from evaluate import evaluate
from fuzz import Case, poisoned
from fuzzing.programs import random_program

PROGRAMS = 12  # that took the primitive, for each primitive
FACTORS = (1, 2, 3, 4, 5, 8, 16)


def leaf(rng, stage, kinds=("spatial", "reduce")):
    return rng.choice([axis for axis in stage.leaf_iter_vars if axis.kind in kinds])


def some_layout(rng, rank):
    divided, by = rng.randrange(rank), rng.choice((2, 3, 8))
    order = rng.sample(range(rank), rank)
    if rank > 1 and rng.random() < 0.3:
        return lambda *i: [i[order[0]] ^ (i[order[1]] % by), *(i[d] for d in order[1:])]
    return lambda *i: [*(i[d] // by if d == divided else i[d] for d in order), i[divided] % by]


def compute_at(rng, s, stage):
    readers = [r for t in stage.outputs for r in s.readers(t)]
    reader = rng.choice(readers)
    stage.compute_at(reader, leaf(rng, reader))


def cache_read(rng, s, stage):
    source = rng.choice([x for x in s.stages if any(s.readers(t) for t in x.outputs)])
    tensor = rng.choice([t for t in source.outputs if s.readers(t)])
    readers = s.readers(tensor)
    s.cache_read(tensor, rng.choice(("local", "global")), rng.sample(readers, rng.randint(1, len(readers))))


def rfactor(rng, s, stage):
    reduction = rng.choice([x for x in s.stages if not x.is_placeholder and x.op.reducer is not None])
    axis = leaf(rng, reduction, ("reduce",))
    if rng.random() < 0.7:
        axis = rng.choice(reduction.split(axis, factor=rng.choice(FACTORS)))
    s.rfactor(reduction.outputs[0], axis, rng.randint(0, len(reduction.op.axis)))


def scatter(rng, s, stage):
    """An axis that a condition names, if there is one."""
    conditional = [x for x in s.stages if not x.is_placeholder and getattr(x.op, "condition", None) is not None]
    x, axis = rng.choice([(x, axis) for x in conditional for axis in x.op.axis if chosen(x.op.condition, axis.var) is not None])
    x.scatter(axis)


def pad(rng, s, stage):
    sums = rng.choice([x for x in s.stages if not x.is_placeholder and x.op.reducer is not None])
    s.pad(sums.outputs[0], *[rng.choice(FACTORS) for _ in (*sums.op.axis, *sums.op.reduce_axis)])


def as_matmul(rng, s, stage):
    """Of a product of two, what both are read along counts matrices; now and then more does."""
    sums = rng.choice([x for x in s.stages if not x.is_placeholder and x.op.reducer is not None])
    left, right = rng.sample(loads_of(sums.op.body[0]), 2)
    rows, columns = ([a for a in sums.op.axis if a.var not in other.variables and rng.random() < 0.8] for other in (right, left))
    columns = [a for a in columns if not any(a is row for row in rows)]
    terms = list(sums.op.reduce_axis)
    s.as_matmul(sums.outputs[0], rows, columns, rng.sample(terms, len(terms)))


def compute_root(rng, s, stage):
    stage.compute_inline()
    stage.compute_root()


def storage_align(rng, s, stage):
    factor = rng.choice((2, 4, 8))
    stage.storage_align(rng.choice(stage.op.axis), factor, rng.randrange(factor))


def set_store_predicate(rng, s, stage):
    """A condition that holds for every element, though nobody sees that at once."""
    axis = leaf(rng, stage, ("spatial",))
    stage.set_store_predicate(te.any(axis < 3, ~(axis * 2 < 5)))


def own_intrinsic(stage, axis):
    """An intrinsic that is what a stage computes along its innermost axis: every element it reads becomes an operand."""
    found = []

    def operand(node):
        if not isinstance(node, Load):
            return node if not node.children else node.with_children(tuple(map(operand, node.children)))
        moves = any(axis.var in index.variables for index in node.indices)
        found.append(te.placeholder((axis.dom.extent,) if moves else (), node.dtype, name=f"x{len(found)}"))
        return found[-1](*([here[0]] if moves else []))

    here = []
    pattern = te.compute((axis.dom.extent,), lambda i: (here.append(i), operand(stage.op.body[0]))[1], name="y")

    def run(y, *xs):
        y[...] = evaluate(pattern, dict(zip(pattern.op.input_tensors, xs, strict=True)))

    return te.decl_tensor_intrin(pattern, body={"c": "not compiled here", "python": run}, name="own")


def tensorize(rng, s, stage):
    """The innermost loop of a stage that computes nothing but with elements, if there is one."""
    fitting = []
    for x in s.stages:
        if x.is_placeholder or x.is_extern or x.is_scan or x.op.reducer is not None or len(x.outputs) != 1 or x.is_scheduled or not x.leaf_iter_vars:
            continue
        axis = x.leaf_iter_vars[-1]
        trial = s.copy()
        try:
            intrinsic = own_intrinsic(x, axis)
            trial.stage_named(x.name).tensorize(axis, intrinsic)
            lower_schedule(trial, [t for y in s.stages if y.is_placeholder for t in y.outputs] + s.outputs)
        except TilewrightError:  # no pattern, or guarded or gathered operands
            continue
        fitting.append((x, axis, intrinsic))
    x, axis, intrinsic = rng.choice(fitting)
    x.tensorize(axis, intrinsic)


# primitive -> what applies it somewhere, given the schedule and a random stage that computes
APPLY = {
    "split": lambda rng, s, stage: stage.split(leaf(rng, stage), **{rng.choice(("factor", "nparts")): rng.choice(FACTORS)}),
    "tile": lambda rng, s, stage: stage.tile(*rng.sample(stage.leaf_iter_vars, 2), rng.choice(FACTORS), rng.choice(FACTORS)),
    "fuse": lambda rng, s, stage: stage.fuse(*stage.leaf_iter_vars[(n := rng.randrange(len(stage.leaf_iter_vars))) : n + 2]),
    "reorder": lambda rng, s, stage: stage.reorder(*rng.sample(stage.leaf_iter_vars, len(stage.leaf_iter_vars))),
    "vectorize": lambda rng, s, stage: stage.vectorize(leaf(rng, stage)),
    "unroll": lambda rng, s, stage: stage.unroll(leaf(rng, stage)),
    "parallel": lambda rng, s, stage: stage.parallel(leaf(rng, stage)),
    "bind": lambda rng, s, stage: stage.bind(leaf(rng, stage, ("spatial",)), te.thread_axis(rng.choice(("blockIdx.x", "threadIdx.x")))),
    "scatter": scatter,
    "pragma": lambda rng, s, stage: stage.pragma(leaf(rng, stage), "unroll", 4),
    "prefetch": lambda rng, s, stage: stage.prefetch(rng.choice(stage.op.input_tensors), leaf(rng, stage), rng.choice((1, 3))),
    "compute_at": compute_at,
    "compute_inline": lambda rng, s, stage: stage.compute_inline(),
    "compute_root": compute_root,
    "set_scope": lambda rng, s, stage: stage.set_scope("local"),
    "storage_align": storage_align,
    "transform_layout": lambda rng, s, stage: stage.transform_layout(some_layout(rng, len(stage.op.axis))),
    "double_buffer": lambda rng, s, stage: stage.double_buffer(rng.choice((2, 3)), rng.random() < 0.5),
    "set_store_predicate": set_store_predicate,
    "env_threads": lambda rng, s, stage: stage.env_threads([te.thread_axis(4, "threadIdx.x")]),
    "tensorize": tensorize,
    "cache_read": cache_read,
    "cache_write": lambda rng, s, stage: s.cache_write(list(stage.outputs), rng.choice(("local", "global"))),
    "rfactor": rfactor,
    "pad": pad,
    "as_matmul": as_matmul,
}


def test_every_primitive_has_its_property():
    assert set(APPLY) | {"rolling_buffer"} == set(PRIMITIVES)  # which has a test of its own: few random programs have regions that overlap


def innermost_file(error):
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename


def run(seed, number, primitive):
    """Whether the primitive was accepted somewhere; fails where the result is wrong."""
    rng = random.Random(f"{primitive}/{seed}/{number}")
    program = random_program(rng)
    data = program.arrays(number)
    s = create_schedule([t.op for t in program.outputs])
    accepted = 0
    for _ in range(3):
        stage = rng.choice([x for x in s.stages if not x.is_placeholder])
        try:
            APPLY[primitive](rng, s, stage)
            accepted += 1
        except (ScheduleError, IndexError, ValueError) as error:  # the last two: there was nothing to choose from
            assert isinstance(error, ScheduleError) or innermost_file(error) == random.__file__, error
    if not accepted:
        return False
    args = program.inputs + program.outputs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScheduleWarning)
            function = lower_schedule(s, args)
    except ScheduleError:
        # placements, strides of symbolic extents, and what C functions read show only now
        assert primitive in ("compute_at", "storage_align", "transform_layout") or any(x.is_extern for x in s.stages), primitive
        return False
    sizes = {size.name: program.sizes[size] for size in function.sizes}
    if iteration_count(function, sizes) > 20_000:
        return False
    case = Case(number, program, [data[t] for t in program.inputs], evaluate(program.outputs, data, program.sizes))
    for backwards in (False, True):
        outputs = [poisoned(w) for w in case.want]
        interpret(function, [*case.arrays, *outputs], sizes, reverse_parallel=backwards)
        wrong = case.compare(outputs)
        assert not wrong, f"{primitive}, seed {seed}, program {number}: {wrong}\n{program.text()}\n{s.as_python()}\n{function}"
    return True


@pytest.mark.parametrize("primitive", APPLY)
def test_results_stay(primitive):
    seed = int(np.random.default_rng().integers(1 << 30))
    print(f"seed {seed}")
    done = 0
    for number in range(200 * PROGRAMS):  # few programs have what scatter is for
        done += run(seed, number, primitive)
        if done == PROGRAMS:
            return
    pytest.fail(f"{primitive} was accepted by {done} programs only (seed {seed})")


def test_rolling_buffer_keeps_results():
    """Random stencils over a stage that is computed at a random axis of its reader, and rolls there."""
    seed = int(np.random.default_rng().integers(1 << 30))
    print(f"seed {seed}")
    done = 0
    for number in range(200):
        rng = random.Random(f"rolling/{seed}/{number}")
        shape = [rng.choice((5, 8, 13)), rng.choice((4, 9, 16))]
        reach = [rng.randint(0, 3), rng.randint(0, 3)]
        points = [(rng.randint(0, reach[0]), rng.randint(0, reach[1])) for _ in range(rng.randint(2, 4))]
        A = te.placeholder([n + r for n, r in zip(shape, reach, strict=True)], dtype="int32", name="A")
        B = te.compute(A.shape, lambda i, j, A=A: A[i, j] * 3 + 1, name="B")
        C = te.compute(shape, lambda i, j, B=B, points=points: sum(B[i + p, j + q] for p, q in points), name="C")
        s = create_schedule(C.op)
        for axis in rng.sample(list(C.op.axis), rng.randint(0, 2)):
            s[C].split(axis, factor=rng.choice((2, 3, 4)))
        try:
            s[B].compute_at(s[C], rng.choice(s[C].leaf_iter_vars))
            s[B].rolling_buffer()
            function = lower_schedule(s, [A, C])
        except ScheduleError:
            continue
        a = np.random.default_rng(number).integers(-99, 99, [int(n) for n in A.shape]).astype("int32")
        c = np.full(shape, -77, "int32")
        interpret(function, [a, c])
        b = a * 3 + 1
        want = sum(b[p : p + shape[0], q : q + shape[1]] for p, q in points)
        np.testing.assert_array_equal(c, want, err_msg=f"seed {seed}, number {number}\n{s.as_python()}\n{function}")
        done += 1
        if done == PROGRAMS:
            return
    pytest.fail(f"rolling_buffer was accepted by {done} programs only (seed {seed})")
