"""The small programs that the reference pages run: one entry for every primitive, refusal, operator, function and error class.

docs/generate.py executes what stands here and prints what comes out; nothing on the pages is written by hand. Text of programs is Python over the names
that the program of the entry defines, with `te`, `tw` and `np`.
"""

# ---------------------------------------------------------------------------------------------------------------- computations

# name -> Python that declares tensors, a schedule `s` and the arguments `args`
PROGRAMS = {
    "matrix": """
A = te.placeholder((100, 16), name="A")
C = te.compute((100, 16), lambda i, j: A[i, j] * 2.0, name="C")
i, j = C.op.axis
s, args = te.create_schedule(C.op), [A, C]""",
    "chain": """
A = te.placeholder((16,), name="A")
B = te.compute((16,), lambda i: A[i] * 2.0, name="B")
C = te.compute((16,), lambda i: B[i] + 1.0, name="C")
s, args = te.create_schedule(C.op), [A, C]""",
    "rows": """
A = te.placeholder((4, 16), name="A")
B = te.compute((4, 16), lambda i, j: A[i, j] * 2.0, name="B")
C = te.compute((4, 16), lambda i, j: B[i, j] + 1.0, name="C")
s, args = te.create_schedule(C.op), [A, C]""",
    "panel": """
A = te.placeholder((8, 32), name="A")
B = te.compute((8, 32), lambda k, j: A[k, j] * 2.0, name="B")
C = te.compute((8, 32), lambda k, j: B[k, j] + 1.0, name="C")
s, args = te.create_schedule(C.op), [A, C]""",
    "row_sum": """
A = te.placeholder((16, 64), name="A")
k = te.reduce_axis((0, 64), name="k")
C = te.compute((16,), lambda i: te.sum(A[i, k], axis=k), name="C")
s, args = te.create_schedule(C.op), [A, C]""",
    "ragged": """
A, B = te.placeholder((5, 30), name="A"), te.placeholder((30,), name="B")
k = te.reduce_axis((0, 30), name="k")
C = te.compute((5,), lambda i: te.sum(A[i, k] * B[k], axis=k), name="C")
s, args = te.create_schedule(C.op), [A, B, C]""",
    "image": """
W, X = te.placeholder((4, 8), name="W"), te.placeholder((8, 5, 5), name="X")
c = te.reduce_axis((0, 8), name="c")
C = te.compute((4, 3, 5), lambda i, y, x: te.sum(W[i, c] * X[c, y * 2, x], axis=c), name="C")
i, y, x = C.op.axis
s, args = te.create_schedule(C.op), [W, X, C]""",
    "outer_sum": """
A, B = te.placeholder((5, 30), name="A"), te.placeholder((5,), name="B")
k = te.reduce_axis((0, 30), name="k")
C = te.compute((5,), lambda i: te.sum(A[i, k] * B[i], axis=k), name="C")
s, args = te.create_schedule(C.op), [A, B, C]""",
    "pipeline": """
A = te.placeholder((16, 24), name="A")
B = te.compute((16, 24), lambda i, j: A[i, j] * 2.0, name="B")
k = te.reduce_axis((0, 24), name="k")
C = te.compute((16,), lambda i: te.sum(B[i, k], axis=k), name="C")
D = te.compute((16,), lambda i: C[i] + 1.0, name="D")
i, j = B.op.axis
s, args = te.create_schedule(D.op), [A, D]""",
    "histogram": """
X = te.placeholder((1000,), "int32", name="X")
k = te.reduce_axis((0, 1000), name="k")
H = te.compute((16,), lambda b: te.sum(te.const(1, "int32"), axis=k, where=X[k] == b), name="H")
b = H.op.axis[0]
s, args = te.create_schedule(H.op), [X, H]""",
    "greatest": """
A = te.placeholder((16, 24), name="A")
k = te.reduce_axis((0, 24), name="k")
C = te.compute((16,), lambda i: te.max(A[i, k], axis=k), name="C")
s, args = te.create_schedule(C.op), [A, C]""",
    "pair": """
A = te.placeholder((16, 24), name="A")
X, Y = te.compute((16,), lambda i: (A[i, 0], A[i, 1]), name="XY")
Z = te.compute((16,), lambda i: X[i] + Y[i], name="Z")
s, args = te.create_schedule(Z.op), [A, Z]""",
    "two_readers": """
A = te.placeholder((16,), name="A")
B = te.compute((16,), lambda i: A[i] * 2.0, name="B")
C = te.compute((16,), lambda i: B[i] + 1.0, name="C")
D = te.compute((16,), lambda i: B[i] * C[i], name="D")
s, args = te.create_schedule(D.op), [A, D]""",
    "three_stages": """
A = te.placeholder((16,), name="A")
B = te.compute((16,), lambda i: A[i] * 2.0, name="B")
C = te.compute((16,), lambda i: B[i] + 1.0, name="C")
D = te.compute((16,), lambda i: C[i] - 3.0, name="D")
s, args = te.create_schedule(D.op), [A, D]""",
    "library_call": """
A = te.placeholder((16,), name="A")
B = te.compute((16,), lambda i: A[i] * 2.0, name="B")
C = te.extern((16,), [B], lambda ins, outs: te.call_extern("transform", ins[0], outs[0], 16), name="C", dtype="float32")
s, args = te.create_schedule(C.op), [A, C]""",
    "window": """
A = te.placeholder((18,), name="A")
B = te.compute((18,), lambda i: A[i] * 2.0, name="B")
C = te.compute((16,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")
(i,) = C.op.axis
s, args = te.create_schedule(C.op), [A, C]""",
    "running": """
X = te.placeholder((9, 5), name="X")
S = te.placeholder((9, 5), name="S")
first = te.compute((1, 5), lambda t, i: X[0, i], name="first")
double = te.compute((9, 5), lambda t, i: S[t - 1, i] * 2.0, name="double")
step = te.compute((9, 5), lambda t, i: double[t, i] + X[t, i], name="step")
Y = te.scan(first, step, S, inputs=[X], name="Y")
t = Y.op.scan_axis
s, args = te.create_schedule(Y.op), [X, Y]""",
    "ordered": """
A = te.placeholder((8, 8), name="A")
decay = te.comm_reducer(lambda x, y: x * 0.5 + y, lambda t: te.const(0.0, t), name="decay", associative=False)
p, q = te.reduce_axis((0, 8), "p"), te.reduce_axis((0, 8), "q")
C = te.compute((4,), lambda i: decay(A[p, q], axis=[p, q]), name="C")
s, args = te.create_schedule(C.op), [A, C]""",
    "started": """
A = te.placeholder((4, 8), name="A")
B = te.compute((4,), lambda i: A[i, 0] * 2.0, name="B")
k = te.reduce_axis((0, 8), name="k")
C = te.compute((4,), lambda i: te.sum(A[i, k] * B[i], axis=k, init=B[i]), name="C")
s, args = te.create_schedule(C.op), [A, C]""",
    "symbolic": """
n = te.size_var("n")
A = te.placeholder((n, n), name="A")
B = te.compute((n, n), lambda i, j: A[i, j] + 1.0, name="B")
C = te.compute((n, n), lambda i, j: B[i, j] * 2.0, name="C")
i, j = C.op.axis
s, args = te.create_schedule(C.op), [A, C]""",
    "packed": """
A = te.placeholder((4, 8), "uint8", name="A")
B = te.placeholder((2, 2, 8, 4), "int8", name="B")  # B[jo, ko, ji, ki] is the weight of output jo * 8 + ji for input ko * 4 + ki
k = te.reduce_axis((0, 8), "k")
product = lambda i, j: A[i, k].astype("int32") * B[j // 8, k // 4, j % 8, k % 4].astype("int32")
C = te.compute((4, 16), lambda i, j: te.sum(product(i, j), axis=k), name="C")
s, args = te.create_schedule(C.op), [A, B, C]
i, j = C.op.axis
jo, ji = s[C].split(j, factor=8)
ko, ki = s[C].split(k, factor=4)
s[C].reorder(i, jo, ko, ji, ki)""",
    "large": """
A = te.placeholder((2**40, 2**40), name="A")
B = te.compute((2**40, 2**40), lambda i, j: A[i, j] + 1.0, name="B")
C = te.compute((2**40, 2**40), lambda i, j: B[i, j] + 1.0, name="C")
s, args = te.create_schedule(C.op), [A, C]""",
}

# ---------------------------------------------------------------------------------------------------------------- primitives

SPLIT_C = "io, ii = s[C].split(C.op.axis[0], factor=4)"

# primitive -> (program, what is done before). What is done is the code in the docstring of the primitive, in its line
# "before -> after, `code`:"; of several pieces of code the last is the primitive, the others belong to "before".
PRIMITIVES = {
    "split": ("matrix", ""),
    "tile": ("matrix", ""),
    "fuse": ("matrix", ""),
    "reorder": ("matrix", ""),
    "vectorize": ("matrix", "jo, ji = s[C].split(j, factor=8)"),
    "unroll": ("matrix", "io, ii = s[C].split(i, factor=2)"),
    "parallel": ("matrix", ""),
    "bind": ("matrix", ""),
    "pragma": ("matrix", ""),
    "scatter": ("histogram", ""),
    "prefetch": ("matrix", ""),
    "compute_at": ("chain", SPLIT_C),
    "compute_inline": ("chain", ""),
    "compute_root": ("chain", "s[B].compute_inline()"),
    "create_group": ("three_stages", "io, ii = s[D].split(D.op.axis[0], factor=4)"),
    "set_scope": ("chain", f"{SPLIT_C}\ns[B].compute_at(s[C], io)\ns[B].set_scope('global')"),
    "storage_align": ("rows", ""),
    "transform_layout": ("panel", ""),
    "double_buffer": ("window", ""),
    "rolling_buffer": ("window", ""),
    "set_store_predicate": ("window", ""),
    "env_threads": ("window", ""),
    "tensorize": ("packed", ""),
    "cache_read": ("row_sum", ""),
    "cache_write": ("row_sum", ""),
    "rfactor": ("row_sum", ""),
    "pad": ("ragged", ""),
    "as_matmul": ("image", ""),
}

# Primitives whose loops are shown also as the generator gets them, after all passes: where the passes do what the primitive asks for.
PASSED = ("vectorize",)

# primitive, or what else refuses a schedule -> illegal programs, one for each of its refusals: (program, code), the last line is what is refused
ILLEGAL = {
    "split": [
        ("pipeline", "s[B].split(i)"),
        ("pipeline", "s[B].split(i, factor=0)"),
        ("pipeline", "s[B].split(i, factor=2**70)"),
        ("pipeline", "s[A].split(i, factor=4)"),
        ("pipeline", "s[B].split('i', factor=4)"),
        ("pipeline", "s[B].split(k, factor=4)"),
        ("pipeline", "s[B].split(i, factor=4)\ns[B].split(i, factor=2)"),
        ("pipeline", "s[B].vectorize(j)\ns[B].split(j, factor=4)"),
    ],
    "tile": [("pipeline", "s[B].tile(i, i, 4, 4)"), ("pipeline", "s[B].tile(i, j, 4, 0)")],
    "fuse": [("pipeline", "s[B].fuse(j, i)"), ("pipeline", "s[C].fuse(C.op.axis[0], k)"), ("large", "s[C].fuse(*C.op.axis)")],
    "reorder": [("pipeline", "s[B].reorder(i, j, i)"), ("pipeline", "s[B].reorder(i, k)"), ("ordered", "s[C].reorder(q, p)")],
    "vectorize": [("pipeline", "s[C].vectorize(k)"), ("symbolic", "s[C].vectorize(j)"), ("pipeline", "s[B].parallel(j)\ns[B].vectorize(j)")],
    "unroll": [("pipeline", "s[B].vectorize(j)\ns[B].unroll(j)")],
    "parallel": [("pipeline", "s[C].parallel(k)")],
    "bind": [
        ("pipeline", "s[B].bind(i, j)"),
        ("pipeline", "s[B].bind(i, te.thread_axis('blockIdx.x'))\ns[B].bind(i, te.thread_axis('threadIdx.x'))"),
        ("pipeline", "s[B].bind(i, te.thread_axis('threadIdx.x'))\ns[B].bind(j, te.thread_axis('threadIdx.x'))"),
        ("pipeline", "s[D].bind(D.op.axis[0], te.thread_axis(8, 'threadIdx.x'))"),
        ("greatest", "s[C].bind(k, te.thread_axis('blockIdx.x'))"),
        ("started", "s[C].bind(k, te.thread_axis('blockIdx.x'))\ns[B].compute_at(s[C], C.op.axis[0])\ntw.lower(s, args, 'cuda')"),
        ("pipeline", "s[C].bind(k, te.thread_axis('blockIdx.x'))\ns[C].compute_at(s[D], D.op.axis[0])\ntw.lower(s, args, 'cuda')"),
    ],
    "pragma": [("pipeline", "s[B].pragma(j, 'import_llvm', 1)"), ("pipeline", "s[B].pragma(j, 'unroll', 0)")],
    "scatter": [
        ("histogram", "s[H].scatter(k)"),
        ("pipeline", "s[C].scatter(C.op.axis[0])"),
        ("histogram", "s[H].scatter(b)\ns[H].reorder(b, k)"),
        ("histogram", "s[H].scatter(b)\ns[H].split(b, factor=4)"),
    ],
    "prefetch": [("pipeline", "s[D].prefetch(A, D.op.axis[0], 1)"), ("pipeline", "s[B].prefetch(A, i, 0)")],
    "compute_at": [
        ("pipeline", "s[D].compute_at(s[C], k)"),
        ("pipeline", "s[C].compute_at(s[C], k)"),
        ("pipeline", "s[C].compute_at(s[D], k)"),
        ("pipeline", "s[B].compute_inline()\ns[C].compute_at(s[B], i)"),
        ("pipeline", "s[B].compute_at(s[C], k)\ns[C].compute_at(s[B], i)"),
        ("pipeline", "s[B].compute_at(s[D], D.op.axis[0])\ntw.lower(s, args)"),
        ("two_readers", "s[B].compute_at(s[D], D.op.axis[0])\ntw.lower(s, args)"),
        ("pipeline", "s[C].compute_at(s[B], i)\ntw.lower(s, args)"),
        ("started", "s[B].compute_at(s[C], k)\ntw.lower(s, args)"),
    ],
    "compute_inline": [
        ("pipeline", "s[C].compute_inline()"),
        ("pipeline", "s[D].compute_inline()"),
        ("pair", "s[X].compute_inline()"),
        ("two_readers", "s[B].compute_at(s[C], C.op.axis[0])\ns[C].compute_inline()"),
        ("window", "s[B].double_buffer()\ns[B].compute_inline()"),
    ],
    "compute_root": [("pipeline", "s[A].compute_root()")],
    "set_scope": [("pipeline", "s[B].set_scope('register')"), ("pipeline", "s[D].set_scope('local')")],
    "storage_align": [
        ("pipeline", "s[D].storage_align(D.op.axis[0], 8)"),
        ("pipeline", "s[B].storage_align(k, 8)"),
        ("pipeline", "s[B].storage_align(i, 0)"),
        ("pipeline", "s[B].storage_align(i, 8, 8)"),
        ("pipeline", "s[B].storage_align(i, 8)\ns[B].transform_layout(lambda i, j: [i * 24 + j])\ntw.lower(s, args)"),
        ("symbolic", "s[B].storage_align(B.op.axis[0], 8)\ntw.lower(s, args)"),
    ],
    "transform_layout": [
        ("pipeline", "s[D].transform_layout(lambda i: [i])"),
        ("pipeline", "s[B].transform_layout([0, 1])"),
        ("pipeline", "s[B].transform_layout(lambda i: [i])"),
        ("pipeline", "s[B].transform_layout(lambda i, j: i)"),
        ("pipeline", "s[B].transform_layout(lambda i, j: [te.exp(i), j])"),
        ("pipeline", "s[B].transform_layout(lambda i, j: [i + j])"),
        ("pipeline", "s[B].transform_layout(lambda i, j: [i - 4, j])"),
        ("symbolic", "s[B].transform_layout(lambda i, j: [i + j, j])"),
        ("large", "s[B].transform_layout(lambda i, j: [i + j, j])"),
    ],
    "double_buffer": [
        ("pipeline", "s[D].double_buffer()"),
        ("pipeline", "s[B].compute_inline()\ns[B].double_buffer()"),
        ("pipeline", "s[B].double_buffer(stages=1)"),
        ("pipeline", "s[B].double_buffer(asynchronous=3)"),
        ("window", "s[B].compute_at(s[C], i)\ns[B].rolling_buffer()\ns[B].double_buffer()"),
    ],
    "rolling_buffer": [
        ("pipeline", "s[D].rolling_buffer()"),
        ("pipeline", "s[B].rolling_buffer()"),
        ("window", "s[B].compute_at(s[C], i)\ns[B].double_buffer()\ns[B].rolling_buffer()"),
        ("window", "s[C].parallel(i)\ns[B].compute_at(s[C], i)\ns[B].rolling_buffer()\ntw.lower(s, args)"),
        ("chain", "s[B].compute_at(s[C], C.op.axis[0])\ns[B].rolling_buffer()\ntw.lower(s, args)"),
        ("rows", "s[B].compute_at(s[C], s[C].fuse(*C.op.axis))\ns[B].rolling_buffer()\ntw.lower(s, args)"),
    ],
    "set_store_predicate": [
        ("pipeline", "s[B].set_store_predicate(3)"),
        ("pipeline", "s[C].set_store_predicate(k < 4)"),
        ("pipeline", "s[B].compute_inline()\ns[B].set_store_predicate(i < 4)"),
    ],
    "env_threads": [
        ("pipeline", "s[B].env_threads([i])"),
        ("pipeline", "s[B].env_threads([te.thread_axis('threadIdx.x')])"),
        ("pipeline", "s[B].env_threads([te.thread_axis(8, 'threadIdx.x'), te.thread_axis(8, 'threadIdx.x')])"),
        ("pipeline", "s[B].env_threads([te.thread_axis(8, 'threadIdx.x')])\ns[B].env_threads([te.thread_axis(8, 'threadIdx.y')])"),
        ("pipeline", "s[B].env_threads([te.thread_axis(8, 'threadIdx.x')])\ntw.lower(s, args)"),
    ],
    "tensorize": [
        ("packed", "s[C].tensorize(j, 'dot_u8s8_8x4')"),
        ("packed", "s[C].tensorize(ji, 4)"),
        ("packed", "s[C].unroll(ki)\ns[C].tensorize(ji, 'dot_u8s8_8x4')"),
        ("packed", "s[C].tensorize(ji, 'dot_u8s8_8x4')\ns[C].parallel(ji)"),
        ("packed", "s[C].vectorize(i)\ns[C].tensorize(ji, 'dot_u8s8_8x4')\ntw.lower(s, args)"),
        ("packed", "s[C].tensorize(ki, 'dot_u8s8_8x4')\ntw.lower(s, args)"),
        ("matrix", "jo, ji = s[C].split(j, factor=6)\ns[C].tensorize(ji, 'dot_u8s8_8x4')\ntw.lower(s, args)"),
    ],
    "cache_read": [
        ("pipeline", "s.cache_read(A, 'local', [D])"),
        ("pipeline", "s.cache_read('A', 'local', [B])"),
        ("pipeline", "s.cache_read(A, 'registers', [B])"),
        ("pipeline", "s.cache_read(A, 'local', [])"),
        ("pipeline", "s.cache_read(te.placeholder((4,), name='Q'), 'local', [B])"),
        ("pipeline", "s[B].prefetch(A, i, 2)\ns.cache_read(A, 'local', [B])"),
    ],
    "cache_write": [
        ("pipeline", "s.cache_write(A, 'local')"),
        ("pipeline", "s.cache_write([], 'local')"),
        ("pipeline", "s[C].split(k, factor=4)\ns.cache_write(C, 'local')"),
        ("pair", "s.cache_write(X, 'local')"),
        ("pipeline", "s[B].compute_at(s[C], k)\ns.cache_write(C, 'local')"),
    ],
    "rfactor": [
        ("pipeline", "s.rfactor(D, D.op.axis[0])"),
        ("pipeline", "s.rfactor(C, C.op.axis[0])"),
        ("pipeline", "s.rfactor(C, k, factor_axis=5)"),
        ("pipeline", "s[C].unroll(k)\ns.rfactor(C, k)"),
        ("pipeline", "s[C].prefetch(B, C.op.axis[0], 1)\ns.rfactor(C, k)"),
        ("ordered", "s.rfactor(C, p)"),
    ],
    "pad": [
        ("ragged", "s.pad(C, 4)"),
        ("ragged", "s[C].split(k, factor=4)\ns.pad(C, 4, 8)"),
        ("pipeline", "s.pad(D, 4)"),
        ("outer_sum", "s.pad(C, 4, 8)"),
        ("image", "s.pad(C, 4, 4, 8, 8)"),
    ],
    "as_matmul": [
        ("image", "s.as_matmul(C, [i], [x, x], [c])"),
        ("image", "s.as_matmul(C, [i], [y, c], [c])"),
        ("image", "s.as_matmul(C, [i], [y, x], [])"),
        ("image", "s.as_matmul(C, [i, y], [x], [c])"),
        ("image", "s[C].parallel(i)\ns.as_matmul(C, [i], [y, x], [c])"),
        ("pipeline", "s.as_matmul(C, [C.op.axis[0]], [], [k])"),
        ("symbolic", "s.as_matmul(C, [i], [j], [])"),
    ],
    "scan": [
        ("running", "s[Y].parallel(t)"),
        ("running", "outer, inner = s[Y].split(t, 4)\ns[Y].reorder(inner, outer)"),
        ("running", "s[step].compute_at(s[Y], t)"),
        ("running", "s[step].compute_inline()"),
        ("running", "s[step].set_scope('local')"),
        ("running", "s.cache_write(Y, 'local')"),
        ("running", "outer, inner = s[Y].split(t, 4)\ns[double].compute_at(s[Y], outer)\ntw.lower(s, args)"),
        ("running", "te.create_schedule([Y.op, step.op])"),
        ("running", "tw.lower(s, [X, S, Y])"),
    ],
    "extern": [
        ("library_call", "s[C].compute_root()"),
        ("library_call", "s[B].compute_inline()\ntw.lower(s, args)"),
        ("library_call", "s[B].set_scope('local')\ntw.lower(s, args)"),
    ],
    "create_group": [
        ("three_stages", "s.create_group([], A)"),
        ("three_stages", "s.create_group('C', A)"),
        ("three_stages", "s.create_group(B, C)"),
        ("three_stages", "s.create_group(C, C)"),
        ("three_stages", "s.create_group(C, A).compute_at(s[B], B.op.axis[0])"),
    ],
    "create_schedule": [("pipeline", "te.create_schedule([])"), ("pipeline", "te.create_schedule(3)")],
    "lower": [
        ("pipeline", "tw.lower(3, args)"),
        ("pipeline", "tw.lower(s, A)"),
        ("pipeline", "tw.lower(s, [A, 3])"),
        ("pipeline", "tw.lower(s, [A, A, D])"),
        ("pipeline", "tw.lower(s, [A, D], name=3)"),
        ("pipeline", "tw.lower(s, [A])"),
        ("pipeline", "tw.lower(s, [D])"),
        ("pipeline", "s[B].compute_inline()\ntw.lower(s, [A, B, D])"),
        ("pipeline", "s[B].set_scope('local')\ntw.lower(s, [A, B, D])"),
        ("pipeline", "s[B].bind(i, te.thread_axis('threadIdx.x'))\ntw.lower(s, args)"),
    ],
}

# ---------------------------------------------------------------------------------------------------------------- errors

# class of tir/errors.py -> programs that end in it: (program, code); () where no small one can
ERRORS = {
    "TilewrightError": (),
    "TEError": (
        ("chain", "te.compute((16,), lambda i: A[i + 1], name='Y')"),
        ("chain", "te.compute((16,), lambda i: A[i] if A[i] > 0.0 else 0.0, name='Y')"),
        ("chain", "te.sum(A[0], axis=3)"),
        ("chain", "te.sum(A[0].astype('int8'), axis=te.reduce_axis((0, 16)))"),
        ("chain", "te.placeholder((16,), 'float31')"),
        ("chain", "te.library.matmul(4, 4, 0)"),
    ),
    "ScheduleError": (("chain", "s[A].vectorize(A)"),),
    "TargetError": (("chain", "tw.build(s, args, target='vulkan')"), ("chain", "tw.build(s, args, target=tw.Target('c', compiler='no-such-compiler'))")),
    "ArgumentError": (
        ("chain", "tw.build(s, args)(np.zeros(16, 'float32'))"),
        ("chain", "tw.build(s, args)(np.zeros(16, 'float64'), np.zeros(16, 'float32'))"),
        ("chain", "tw.build(s, args)(np.zeros(8, 'float32'), np.zeros(16, 'float32'))"),
        ("chain", "x = np.zeros(16, 'float32')\ntw.build(s, args)(x, x)"),
    ),
    "PipelineError": (("chain", "from tilewright.tir.passes.pipeline import Pipeline, Vectorize\nPipeline('mine', start=(), passes=[Vectorize()], end=())"),),
    "LogError": (("chain", "tw.autotune.load_best(tw.autotune.Task('matmul', (4, 4, 4)), log='mine.db')"),),
    "TuningError": (),
    "EmulatorError": (("chain", "tw.emulate_cuda('__global__ void k() { if (threadIdx.x == 5) __trap(); }', 'k', grid=1, block=32, args=[])"),),
    "CompileError": (),
    "InternalError": (),
    "ScheduleWarning": (("matrix", "s[C].parallel(i)\ns[C].parallel(j)\ntw.lower(s, args)"),),
}

# ---------------------------------------------------------------------------------------------------------------- te.library

# operator -> (a call, its flops as a formula over the parameters and `result`, the number of elements of the result; the generator checks it)
LIBRARY = {
    "matmul": ("matmul(64, 48, 32)", "2 * M * N * K"),
    "batch_matmul": ("batch_matmul(4, 64, 48, 32)", "2 * B * M * N * K"),
    "dense": ("dense(64, 48, 32)", "2 * M * N * K"),
    "gemv": ("gemv(64, 32)", "2 * M * K"),
    "conv1d": ("conv1d(1, 16, 100, 32, 3, padding=1)", "2 * result * CI * K"),
    "conv2d": ("conv2d(1, 16, 14, 14, 32, 3, 3, padding=1, groups=2)", "2 * result * (CI // groups) * KH * KW"),
    "depthwise_conv2d": ("depthwise_conv2d(1, 16, 14, 14, 3, 3, stride=2, padding=1)", "2 * result * KH * KW"),
    "conv2d_transpose": ("conv2d_transpose(1, 16, 7, 7, 8, 4, 4, stride=2, padding=1)", "2 * N * CI * H * W * CO * KH * KW"),
    "conv2d_im2col": ("conv2d_im2col(1, 16, 14, 14, 32, 3, 3, padding=1)", "2 * result * CI * KH * KW"),
    "conv2d_winograd": ("conv2d_winograd(1, 16, 14, 14, 32, m=4)", "2 * result * CI * 9"),
    "quantized_matmul": ("quantized_matmul(64, 48, 32, a_zero=3, out_zero=-5, out_dtype='int8')", "2 * M * N * K"),
    "quantized_conv2d": ("quantized_conv2d(1, 16, 14, 14, 32, 3, 3, padding=1, groups=2)", "2 * result * (CI // groups) * KH * KW"),
    "int4_matmul": ("int4_matmul(64, 48, 128, dtype='float16', acc_dtype='float32')", "2 * M * N * K"),
    "pool2d": ("pool2d(1, 16, 14, 14, 'max', 2)", "result * k * k"),
    "softmax": ("softmax((64, 128))", "5 * result"),
    "layer_norm": ("layer_norm((64, 128), affine=True)", "(8 if affine else 6) * result"),
    "rms_norm": ("rms_norm((64, 128))", "(4 if affine else 3) * result"),
    "batch_norm": ("batch_norm((2, 16, 14, 14))", "3 * result"),
    "flash_attention": ("flash_attention(1, 8, 16, 16, 32, key_block=8)", "B * H * Sq * Sk * (4 * D + 5)"),
    "attention": ("attention(1, 8, 16, 16, 32, kv_heads=2)", "B * H * Sq * Sk * (4 * D + 5)"),
    "relu": ("relu((64, 128))", "result"),
    "gelu": ("gelu((64, 128))", "8 * result"),
    "silu": ("silu((64, 128))", "2 * result"),
    "transpose": ("transpose((64, 128))", "result"),
    "sum": ("sum((64, 128))", "shape[0] * shape[1]"),
    "argmax": ("argmax((64, 128))", "shape[0] * shape[1]"),
}

# ---------------------------------------------------------------------------------------------------------------- functions of te

# function -> uses of it, each with what NumPy (or Python) calls the same; the generator evaluates both and compares. x, y, z: float32 vectors (y > 0),
# n, m: int32 vectors, X: a float32 matrix reduced along its rows by k. Functions that are not here declare; they are listed with what they do.
FUNCTIONS = {
    "abs": [("te.abs(x)", "np.abs(x)")],
    "all": [("te.all(x > 0, y < 2)", "(x > 0) & (y < 2)"), ("te.all(X[i, k] > 0, axis=k)", "(X > 0).all(1)")],
    "any": [("te.any(x > 0, y < 2)", "(x > 0) | (y < 2)"), ("te.any(X[i, k] > 0, axis=k)", "(X > 0).any(1)")],
    "argmax": [("te.argmax((k, X[i, k]), axis=k)", "X.argmax(1), X.max(1)")],
    "argmin": [("te.argmin((k, X[i, k]), axis=k)", "X.argmin(1), X.min(1)")],
    "cast": [("te.cast(x, 'int32')", "x.astype('int32')")],
    "ceil": [("te.ceil(x)", "np.ceil(x)")],
    "clip": [("te.clip(x, -1, 1)", "np.clip(x, -1, 1)")],
    "comm_reducer": [
        (
            "te.comm_reducer(lambda a, b: a + b, lambda t: te.const(0, t), 'total')(te.abs(X[i, k]), axis=k)",
            "np.abs(X).sum(1)",
        )
    ],
    "const": [("x + te.const(3, 'float32')", "x + np.float32(3)")],
    "cos": [("te.cos(x)", "np.cos(x)")],
    "erf": [("te.erf(x)", "[math.erf(v) for v in x]")],
    "exp": [("te.exp(x)", "np.exp(x)")],
    "exp2": [("te.exp2(x)", "np.exp2(x)")],
    "floor": [("te.floor(x)", "np.floor(x)")],
    "fma": [("te.fma(x, y, z)", "x * y + z")],
    "if_then_else": [("te.if_then_else(x > 0, x, y)", "np.where(x > 0, x, y)")],
    "isfinite": [("te.isfinite(x / z)", "np.isfinite(x / z)")],
    "isinf": [("te.isinf(x / z)", "np.isinf(x / z)")],
    "isnan": [("te.isnan(x / z)", "np.isnan(x / z)")],
    "log": [("te.log(y)", "np.log(y)")],
    "log1p": [("te.log1p(y)", "np.log1p(y)")],
    "log2": [("te.log2(y)", "np.log2(y)")],
    "max": [("te.max(x, y)", "np.maximum(x, y)"), ("te.max(X[i, k], axis=k)", "X.max(1)")],
    "max_value": [("te.minimum(n, te.max_value('int8').astype('int32'))", "np.minimum(n, np.iinfo('int8').max)")],
    "maximum": [("te.maximum(x, y)", "np.maximum(x, y)")],
    "min": [("te.min(x, y)", "np.minimum(x, y)"), ("te.min(X[i, k], axis=k)", "X.min(1)")],
    "min_value": [("te.maximum(n, te.min_value('int8').astype('int32'))", "np.maximum(n, np.iinfo('int8').min)")],
    "minimum": [("te.minimum(x, y)", "np.minimum(x, y)")],
    "popcount": [("te.popcount(m)", "[(int(v) % 2**32).bit_count() for v in m]")],
    "pow": [("te.pow(x, y)", "np.power(x, y)")],
    "power": [("te.power(x, y)", "np.power(x, y)")],
    "prod": [("te.prod(X[i, k], axis=k)", "X.prod(1)")],
    "reinterpret": [("te.reinterpret(x, 'int32')", "x.view('int32')")],
    "round": [("te.round(x)", "np.round(x)")],
    "rsqrt": [("te.rsqrt(y)", "1 / np.sqrt(y)")],
    "select": [("te.select(x > 0, x, y)", "np.where(x > 0, x, y)")],
    "sigmoid": [("te.sigmoid(x)", "1 / (1 + np.exp(-x))")],
    "sin": [("te.sin(x)", "np.sin(x)")],
    "sqrt": [("te.sqrt(y)", "np.sqrt(y)")],
    "sum": [("te.sum(X[i, k], axis=k)", "X.sum(1)"), ("te.sum(X[i, k], axis=k, where=X[i, k] > 0)", "X.sum(1, where=X > 0)")],
    "tanh": [("te.tanh(x)", "np.tanh(x)")],
    "trunc": [("te.trunc(x)", "np.trunc(x)")],
}
