"""Flatten: what it turns accesses into, and that a flat function comes back as it is."""

from tilewright.tir.expr import Buffer, Var, const, load, ramp
from tilewright.tir.passes import Flatten
from tilewright.tir.stmt import Allocate, For, Func, Prefetch, seq, store


def test_strides_symbolic_sizes_and_scalars():
    n = Var("n", "int32", (0, None))
    i, k = Var("i", "int32", (0, 3)), Var("k", "int32", (0, 7))
    a, b = Buffer("A", (4, 8)), Buffer("B", (n, 4, 8))
    c, s = Buffer("C", (4, 8), strides=(10, 1)), Buffer("S", ())
    copy = seq(
        store(c, (i, k), load(a, (i, k)) + load(s, ())),
        Prefetch(a, (i + 1, k)),
        store(b, (n - 1, i, ramp(k, 1, 4)), load(c, (i, ramp(k, 1, 4)))),
    )
    body = For(i, const(4), "serial", For(k, const(8), "serial", Allocate(c, copy)))
    func = Func("f", (a, b, s), frozenset([b]), body, (n,))
    flat = Flatten().run(func, None)
    assert str(flat) == (
        "def f(A: float32[32], B: float32[n * 32] out, S: float32[1], n: int32):\n"
        "    for i in range(4):\n"
        "        for k in range(8):\n"
        "            allocate C: float32[40]\n"
        "            C[i * 10 + k] = A[i * 8 + k] + S[0]\n"
        "            prefetch A[(i + 1) * 8 + k]\n"
        "            B[ramp(k + ((n - 1) * 32 + i * 8), 1, 4)] = C[ramp(k + i * 10, 1, 4)]"
    )
    assert Flatten().run(flat, None) is flat


def test_a_local_buffer_that_threads_share_is_not_local():
    r = Buffer("R", (8,))
    local = [Buffer(name, (8,), scope="local") for name in ("own", "shared", "read")]
    own, shared, read = local
    i = Var("i", "int32", (0, 7))
    inside = Allocate(own, seq(store(own, (i,), load(read, (i,))), store(shared, (i,), load(own, (i,)))))
    body = Allocate(shared, Allocate(read, For(i, const(8), "parallel", seq(inside, store(r, (i,), const(1.0, "float32"))))))
    flat = Flatten().run(Func("f", (r,), frozenset([r]), body), None)
    assert [line.strip() for line in str(flat).splitlines() if "allocate" in line] == [
        "allocate shared: float32[8]", "allocate read: float32[8]", "allocate own: float32[8] in local",
    ]  # fmt: skip
    assert Flatten().run(flat, None) is flat


def test_indices_read_from_memory_do_not_wrap_in_large_buffers():
    n, i = Var("n", "int32", (0, None)), Var("i", "int32", (0, 3))
    rows, out = Buffer("I", (4,), "int32"), Buffer("C", (4,), "int8")
    for shape, text in (
        ((50_000, 40_000), "A[I[i] * 40000 + i]"),
        ((60_000, 40_000), "A[int64(I[i]) * int64(40000) + int64(i)]"),
        ((n, 8), "A[int64(I[i]) * int64(8) + int64(i)]"),
    ):
        a = Buffer("A", shape, "int8")
        body = For(i, const(4), "serial", store(out, (i,), load(a, (load(rows, (i,)), i))))
        flat = Flatten().run(Func("f", (a, rows, out), frozenset([out]), body, (n,)), None)
        assert str(flat).endswith(f"C[i] = {text}")
