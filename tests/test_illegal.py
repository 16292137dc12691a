"""Random illegal use: whatever is given to the functions and primitives, only a named error of the package may come out.

Not here: what each refusal says (tests/te/test_errors.py, tests/schedule/test_errors.py). A TypeError of Python for a wrong number of arguments is
no fault; one that comes from inside the package is.
"""

import inspect
import operator
import random
import traceback
import warnings

import numpy as np
import pytest

import tilewright as tw
from tilewright import te, tir

FUNCTIONS = [name for name in te.__all__ if inspect.isfunction(getattr(te, name))]
OPERATORS = [getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "lshift", "and_", "eq", "lt")]
PRIMITIVES = ["split", "tile", "fuse", "reorder", "vectorize", "unroll", "parallel", "bind", "compute_at", "compute_inline", "compute_root", "set_scope"]
PRIMITIVES += ["storage_align", "transform_layout", "pragma", "prefetch", "double_buffer", "rolling_buffer", "set_store_predicate", "env_threads", "tensorize",
               "scatter"]  # fmt: skip
LAYOUTS = [
    lambda i: [i], lambda i, j: [j, i], lambda i, j: [i // 4, j, i % 4], lambda i: [i * 2**40], lambda i: i, lambda i: [i / 2], lambda i: [i, "a"],
    lambda i: [None], lambda *i: [], lambda *i: [*i, *i], lambda i, j: [i * 24 + j], lambda i: [i * i],
]  # fmt: skip
NUMBERS = [1, 2, 3, 5, 7, 30, 2**40, 2**62, 2**64]


class Program:
    """A[16, 24] -> B -> C, a reduction over k -> D -> P and Q, together -> E, the output."""

    def __init__(self):
        self.A = te.placeholder((16, 24), name="A")
        self.B = te.compute((16, 24), lambda i, j: self.A[i, j] * 2, name="B")
        self.k = te.reduce_axis((0, 24), "k")
        self.C = te.compute((16,), lambda i: te.sum(self.B[i, self.k], axis=self.k), name="C")
        self.D = te.compute((16,), lambda i: self.C[i] + 1, name="D")
        self.P, self.Q = te.compute((16,), lambda i: (self.D[i], self.D[i] * 2), name="PQ")
        self.E = te.compute((16,), lambda i: self.P[i] + self.Q[i], name="E")

    def things(self):
        return [self.A, self.B, self.C, self.D, self.P, self.Q, self.E, self.k, *self.B.op.axis, *self.C.op.axis, *self.D.op.axis, *self.E.op.axis]

    @property
    def args(self):
        return [self.A, self.E]


class StepsAndCalls:
    """X[n or 9, 4] -> two states of a scan, with a stage and a reduction inside a step -> F, a call of a C function -> E, the output."""

    def __init__(self, length):
        self.X = te.placeholder((length, 4), name="X")
        S, R = te.placeholder((length, 4), name="S"), te.placeholder((length,), name="R")
        self.init = te.compute((2, 4), lambda t, i: self.X[t, i], name="init")
        start = te.compute((2,), lambda t: te.const(1.0, "float32"), name="start")
        self.between = te.compute((length, 4), lambda t, i: S[t - 2, i] + self.X[t, i], name="between")
        self.k = te.reduce_axis((0, 4), "k")
        total = te.compute((length,), lambda t: te.sum(self.between[t, self.k], axis=self.k), name="total")
        self.update = te.compute((length, 4), lambda t, i: self.between[t, i] + R[t - 1], name="update")
        self.Y, self.Z = te.scan([self.init, start], [self.update, total], [S, R], name="Y")
        last = te.compute((8,), lambda i: self.Y[length - 1, i % 4] + self.Z[length - 1], name="last")
        self.F = te.extern((8,), [last], lambda ins, outs: te.call_extern("memcpy", outs[0], ins[0], te.const(32, "int64")), name="F")
        self.E = te.compute((8,), lambda i: self.F[i] + 1.0, name="E")
        self.stages = [self.X, S, R, self.init, start, self.between, total, self.update, self.Y, self.Z, last, self.F, self.E]

    def things(self):
        return [*self.stages, self.k, self.Y.op.scan_axis, *self.update.op.axis, *self.between.op.axis, *self.E.op.axis]

    @property
    def args(self):
        return [self.X, self.E]


def intrinsics():
    """Ones that fit a stage of the programs here (eight additions), that fit none, and the ready-made one."""
    found = ["dot_u8s8_8x4", "no such one"]
    for extent in (1, 4, 8):
        x = te.placeholder((extent,), name="x")
        y = te.compute((extent,), lambda i, x=x: x[i] + 1.0, name="y")
        found.append(te.decl_tensor_intrin(y, body={"c": "y[0] = x[0] + 1.0f;", "python": lambda y, x: None}, name=f"add{extent}"))
    return found


INTRINSICS = intrinsics()
THREADS = [te.thread_axis("blockIdx.x"), te.thread_axis(4, "threadIdx.x"), te.thread_axis(32, "threadIdx.x"), te.thread_axis(2, "vthread")]


def strange_values():
    p, other, n = Program(), Program(), te.size_var("n")
    return [
        None, float("nan"), float("inf"), -1, 0, 1, 3, 2**40, -(2**40), 2**70, 1.5, "x", "", [], (), [1], {}, b"a", True, 1j, set(), range(3), slice(0, 3), ...,
        object(), int, lambda *a: None, lambda i: i, lambda i, j: [i, j], np.float32(2), np.int64(3), np.array([1, 2]), n, n + 1, p.A[0, 0], p.B.op, p.A.op,
        te.thread_axis("threadIdx.x"), te.thread_axis(4, "threadIdx.y"), tir.const(3, "int32"), tir.const(2.5, "float32"), "local", "float32", "int8", (0, 8),
        te.reduce_axis((0, 4), "r"), te.sum(p.B[0, p.k], axis=p.k), te.sum, *p.things(), *other.things(),
    ]  # fmt: skip


def attempt(what, call, *args, **options):
    """Call; an error of the package is what illegal use is to get, and gives None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(*args, **options)
    except tw.InternalError:
        raise
    except tw.TilewrightError:
        return None
    except Exception as error:
        inside = any("tilewright" in frame.filename and "test" not in frame.filename for frame in traceback.extract_tb(error.__traceback__))
        if inside or not isinstance(error, TypeError):
            raise AssertionError(f"{what} of {args} {options}: {type(error).__name__} {error}") from error
        return None


@pytest.mark.parametrize("seed", range(3))
def test_functions(seed):
    rng, values = random.Random(seed), strange_values()
    for _ in range(700):
        name = rng.choice(FUNCTIONS)
        function = getattr(te, name)
        parameters = inspect.signature(function).parameters.values()
        many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        least = sum(p.default is p.empty for p in positional)
        count = rng.randrange(least, least + 4) if many else rng.randint(least, len(positional))
        given = [rng.choice(values) for _ in range(count)]
        if name == "compute" and any(v is int for v in given):
            continue  # a user's function that raises by itself
        attempt(f"seed {seed}: te.{name}", function, *given)


@pytest.mark.parametrize("seed", range(2))
def test_operators(seed):
    rng, values = random.Random(seed), strange_values()
    p = Program()
    for _ in range(600):
        pair = [rng.choice([p.A[0, 0], p.B.op.axis[0], te.size_var("n"), p.A, p.B.op.axis[0].var, p.A[0, 0] > 0]), rng.choice(values)]
        rng.shuffle(pair)
        if not any(isinstance(v, np.ndarray) for v in pair):
            attempt(f"seed {seed}: {pair}", rng.choice(OPERATORS), *pair)


@pytest.mark.parametrize("call", [tw.lower, tw.build, tw.create_schedule, tw.replay_trace, tw.Target, tw.load_module])
def test_entrances(call):
    rng, values = random.Random(7), strange_values()
    s = tw.create_schedule(Program().E)
    least = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in inspect.signature(call).parameters.values())
    for _ in range(60):
        attempt(call.__name__, call, *[rng.choice([*values, s]) for _ in range(least)])


@pytest.mark.parametrize("seed", range(4))
def test_primitives(seed):
    rng, values = random.Random(seed), strange_values()
    for _ in range(50):
        p = rng.choice((Program, lambda: StepsAndCalls(9), lambda: StepsAndCalls(te.size_var("n"))))()
        s = tw.create_schedule(p.E)
        known, right = p.things(), rng.choice((0.7, 0.95, 1.0))
        for _ in range(rng.randrange(1, 12)):
            stage = rng.choice(s.stages)
            name = rng.choice([*PRIMITIVES, "cache_read", "cache_write", "rfactor", "create_group"])
            method = getattr(stage if name in PRIMITIVES else s, name)
            result = attempt(f"seed {seed}: {stage.name}, {name}", method, *arguments(rng, method, stage, s, known, values, right))
            known += result if isinstance(result, (tuple, list)) else [] if result is None else [result]
            if name == "create_group" and result is not None:
                attempt(f"seed {seed}: a group", result.compute_at, *arguments(rng, result.compute_at, stage, s, known, values, right))
        attempt(f"seed {seed}: lower\n{s.as_python()}", tw.lower, s, p.args)


def arguments(rng, method, stage, s, known, values, right=0.7):
    """Arguments for a primitive: of the right kind with a probability of `right` each, else of no kind at all; later optional ones are often left out."""
    consumer = rng.choice(s.stages)
    axes = consumer.leaf_iter_vars if method.__name__ == "compute_at" else getattr(stage, "leaf_iter_vars", [])
    predicates = [axis < 3 for axis in axes] + [axis * 2 >= 1 for axis in axes]
    tensors = [t for x in s.stages for t in x.outputs]
    likely = {
        "axis": axes, "x": axes, "y": axes, "mapping": LAYOUTS, "scope": ["local", "global", "shared"], "consumer": [consumer],
        "intrinsic": INTRINSICS, "thread": THREADS, "threads": [[t] for t in THREADS] + [THREADS[:2], THREADS[1:3], []],
        "tensor": tensors, "outputs": tensors, "inputs": tensors, "readers": s.stages, "name": ["unroll", "auto_unroll_max_step", "no such one"],
        "predicate": predicates, "factor_axis": [0, 1, 2], "value": [1, 4, 16], "stages": [2, 3], "asynchronous": [True, False],
        **dict.fromkeys(("factor", "nparts", "x_factor", "y_factor", "offset"), NUMBERS),
    }  # fmt: skip
    found = []
    for p in inspect.signature(method).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            return [rng.choice((axes or known) if rng.random() < right else known if rng.random() < 0.8 else values) for _ in range(rng.randrange(4))]
        if p.default is not p.empty and found and rng.random() < 0.6:
            break
        found.append(rng.choice((likely.get(p.name) or known) if rng.random() < right else values))
    return found


def test_integers_of_numpy_are_integers_in_the_trace():
    p = Program()
    s = tw.create_schedule(p.E)
    s[p.B].split(p.B.op.axis[0], factor=np.int64(4))
    again = tw.replay_trace(tw.create_schedule(Program().E), s.trace.to_json())
    assert str(again) == str(s)


def test_rfactor_takes_the_list_of_a_tuple_reduction():
    A = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    both = te.compute((4,), lambda i: te.argmax((k, A[i, k]), axis=k), name="both")
    s = tw.create_schedule(both[0])
    assert len(s.rfactor(list(both), k)) == 2
    with pytest.raises(tw.ScheduleError, match="all of them"):
        tw.create_schedule(both[0]).rfactor([both[1]], k)


def copy_of(shape, dtype="float32", columns=()):
    """C[i] = B[i, 0 ...], B an intermediate with more dimensions, read from A."""
    A = te.placeholder(shape, dtype, name="A")
    B = te.compute((*shape, *columns), lambda *i: A[i[: len(shape)]] + 1, name="B")
    C = te.compute(shape, lambda *i: B[(*i, *[0] * len(columns))], name="C")
    return tw.create_schedule(C), [A, C]


@pytest.mark.parametrize("shape, columns", [((2**62,), ()), ((2**40, 2**40), ()), ((8,), (2**60,)), ((2**61,), ()), ((8,), (2**40, 2**30))])
def test_more_memory_than_there_are_addresses(shape, columns):
    """The C text would have computed the size modulo 2^64."""
    with pytest.raises(tw.TargetError, match="more than any address"):
        tw.lower(*copy_of(shape, columns=columns))


def test_loops_longer_than_any_counter():
    with pytest.raises(tw.TEError, match="int64"):
        te.placeholder((2**63,))
    with pytest.raises(tw.TEError, match="int64"):
        te.reduce_axis((0, 2**70))
    s, (A, C) = copy_of((8,))
    i = C.op.axis[0]
    with pytest.raises(tw.ScheduleError, match="at most"):
        s[C].split(i, factor=2**63)
    outer, inner = s[C].split(i, factor=2**40)
    middle, inner = s[C].split(inner, nparts=2**40)
    middle, more = s[C].split(middle, nparts=2**40)
    _, inner = s[C].split(more, factor=2**50)
    with pytest.raises(tw.ScheduleError, match="together"):
        s[C].fuse(middle, s[C].leaf_iter_vars[2], inner)


def test_a_large_workspace_that_fits_an_address_is_a_memory_error():
    s, args = copy_of((8,), columns=(2**50,))
    module = tw.build(s, args)
    with pytest.raises(MemoryError, match="intermediate"):
        module(np.zeros(8, "float32"), np.zeros(8, "float32"))


@pytest.mark.parametrize("threads, fits", [(2, True), (1024, False)])
def test_memory_of_all_threads_together(threads, fits):
    """B is kept once for each thread: 2^54 bytes times 1024 are 2^64."""
    A = te.placeholder((8,), name="A")
    B = te.compute((8, 2**52), lambda i, j: A[i] + te.sin(A[i] * j), name="B")
    k = te.reduce_axis((0, 2**52), "k")
    C = te.compute((8,), lambda i: te.sum(B[i, k], axis=k), name="C")
    s = tw.create_schedule(C)
    s[B].compute_at(s[C], C.op.axis[0])
    s[C].parallel(C.op.axis[0])
    target = tw.Target("c", threads=threads)
    if fits:
        assert tw.lower(s, [A, C], target).workspace_bytes[1] == 2**54
    else:
        with pytest.raises(tw.TargetError, match="more than any address"):
            tw.lower(s, [A, C], target)


@pytest.mark.parametrize("in_threads", [False, True])
def test_memory_that_depends_on_sizes_does_not_wrap(in_threads):
    """2^22 cubed times 4 are 2^68 bytes, which are 0 modulo 2^64."""
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n, n, n), lambda i, j, k: A[i] + te.sin(A[j] * A[k]), name="B")
    C = te.compute((n,), lambda i: B[i, 0, 0] + B[0, i, i], name="C")
    s = tw.create_schedule(C)
    if in_threads:
        s[B].compute_at(s[C], C.op.axis[0])
        s[C].parallel(C.op.axis[0])
    module = tw.build(s, [A, C])
    a, c = np.zeros(1 << 22, "float32"), np.zeros(1 << 22, "float32")
    with pytest.raises(MemoryError, match="intermediates"):
        module(a, c)
    module(a[:5], c[:5])


def test_too_many_threads():
    with pytest.raises(tw.TargetError, match="at most"):
        tw.Target("c", threads=1 << 20)


class Exporter:
    def __getattr__(self, name):
        raise KeyError(name)


def test_an_argument_that_raises_anything():
    s, args = copy_of((8,))
    with pytest.raises(tw.ArgumentError, match="does not give its memory"):
        tw.build(s, args)(Exporter(), np.zeros(8, "float32"))
