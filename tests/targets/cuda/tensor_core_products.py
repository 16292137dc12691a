"""Products of matrices on tensor cores, by either set of intrinsics, mma or wmma, and how they are run: for test_wmma.py and test_tensor_cores.py."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.te import tensor_cores, wmma
from tilewright.te.tensor import Tensor
from tilewright.te.wmma import product_name, store_name, wmma_name

SM_80 = tw.Target("cuda", arch="sm_80", device="emulator", threads=2)
MMA = {"f16": "float16", "bf16": "bfloat16", "s8": "int8", "u8": "uint8", "tf32": "float32"}


def run_clean(schedule, args, arrays, target=SM_80):
    """The module, after a run with every check of the emulator."""
    module = tw.build(schedule, args, target=target, check="race")
    module(*arrays)
    assert module.report.faults == []
    return module


@dataclass
class Product:
    """out[i, j] = sum over k of a[i, k] * b[k, j], and how it is done. `kind`: as "f16" or "f16_f16"; `shape`: of wmma, None for mma; `a`, `b`: the orders in
    which they are declared; `store`: "store" or "store_t"; `shared`: operands that go through shared memory; `tiles`: of a warp, along m and n; `warps` of a
    block, along m; `steps`: tiles of terms in a panel; `buffers`: of each panel; `alike`: warps that do the same."""

    kind: str = "f16"
    shape: wmma.WmmaShape | None = wmma.SHAPES[0]
    a: str = "a"
    b: str = "b"
    store: str = "store"
    shared: tuple[str, ...] = ()
    tiles: tuple[int, int] = (1, 1)
    warps: int = 1
    steps: int = 1
    buffers: int = 1
    alike: int = 1
    extents: tuple[int, int, int] = field(default=(0, 0, 0))

    @property
    def sums(self) -> str:
        return wmma.KINDS[self.kind].sums if self.shape else tensor_cores.KINDS[self.kind].sums

    @property
    def dtype(self) -> str:
        return MMA[self.kind.split("_")[0]]

    @property
    def mnk(self) -> tuple[int, int, int]:
        """Of a tile."""
        return (self.shape.m, self.shape.n, self.shape.k) if self.shape else (16, 16, tensor_cores.KINDS[self.kind].terms)

    @property
    def sizes(self) -> tuple[int, int, int]:
        m, n, k = self.mnk
        least = m * self.tiles[0] * self.warps, n * self.tiles[1], k * self.steps
        return tuple(extent or 2 * part for extent, part in zip(self.extents, least, strict=True))

    def intrinsic(self, what: str) -> str:
        """The name of the one that does "a", "at", "b", "bt" (loads), "store", "store_t" or "product"."""
        if self.shape is None:
            if what == "product":
                return f"mma_{self.kind}{'_bt' if self.b == 'bt' else ''}"
            return tensor_cores.KINDS[self.kind].store if what == "store" else f"mma_{self.kind}_load_{what}"
        kind = wmma.KINDS[self.kind]
        if what == "product":
            return product_name(kind, self.shape, self.a, self.b)
        return store_name(kind, self.shape, what) if what.startswith("store") else wmma_name(kind.name, self.shape, f"load_{what}")

    def operands(self) -> tuple[Tensor, Tensor]:
        m, n, k = self.sizes
        a = te.placeholder((m, k) if self.a == "a" else (k, m), self.dtype, "A")
        return a, te.placeholder((k, n) if self.b == "b" else (n, k), self.dtype, "B")

    def compute(self, a: Tensor, b: Tensor, name: str = "C") -> Tensor:
        m, n, k_extent = self.sizes
        k = te.reduce_axis((0, k_extent), "k")

        def term(i, j):
            left, right = a[i, k] if self.a == "a" else a[k, i], b[k, j] if self.b == "b" else b[j, k]
            return left.astype(self.sums) * right.astype(self.sums)

        c = te.compute((m, n), lambda i, j: te.sum(term(i, j), axis=k), name)
        return c if self.store == "store" else te.compute((n, m), lambda j, i: c[i, j], f"{name}T")

    def schedule(self, s, operands: tuple[Tensor, Tensor], out: Tensor) -> dict[str, Tensor]:
        """Puts what `compute` gave on tensor cores; returns the stages of its fragments and panels."""
        m, n, k = self.mnk
        if self.store == "store":
            sums = s.cache_write(out, "wmma.accumulator")
        else:
            (sums,) = out.op.input_tensors
            s[sums].set_scope("wmma.accumulator")
        rows, columns = (m, n) if self.store == "store" else (n, m)
        warp_rows, warp_columns = m * self.tiles[0], n * self.tiles[1]
        of_warp = (warp_rows, warp_columns) if self.store == "store" else (warp_columns, warp_rows)
        of_block = (warp_rows * self.warps, warp_columns) if self.store == "store" else (warp_columns, warp_rows * self.warps)
        io, jo, i, j = s[out].tile(*out.op.axis, *of_block)
        wi, i = s[out].split(i, factor=of_warp[0])
        wj, j = s[out].split(j, factor=of_warp[1])
        ti, i = s[out].split(i, factor=rows)
        tj, j = s[out].split(j, factor=columns)
        s[out].reorder(io, jo, wi, wj, ti, tj, i, j)
        s[out].bind(io, te.thread_axis("blockIdx.y"))
        s[out].bind(jo, te.thread_axis("blockIdx.x"))
        warp = wi if self.store == "store" else wj
        y = self.warps * self.alike
        if self.warps > 1:
            s[out].bind(warp, te.thread_axis((0, self.warps), "threadIdx.y"))
        s[out].tensorize(i, self.intrinsic(self.store))
        s[sums].compute_at(s[out], wj)
        ko, ki = s[sums].split(s[sums].op.reduce_axis[0], factor=k * self.steps)
        kt, ki = s[sums].split(ki, factor=k)
        i, j = s[sums].op.axis
        ti, i = s[sums].split(i, factor=m)
        tj, j = s[sums].split(j, factor=n)
        s[sums].reorder(ko, kt, ti, tj, i, j, ki)
        s[sums].tensorize(i, self.intrinsic("product"))
        made = {"sums": sums}
        for operand, order in zip(operands, (self.a, self.b), strict=True):
            source = operand
            if order[0] in self.shared:
                source = made[f"panel_{order[0]}"] = s.cache_read(operand, "shared", [sums])
                s[source].compute_at(s[sums], ko)
                s[source].storage_align(s[source].op.axis[0], 32, 16)  # rows of 32 bytes more, or of 16
                rest, lane = s[source].split(s[source].fuse(*s[source].op.axis), factor=32)
                s[source].bind(lane, te.thread_axis((0, 32), "threadIdx.x"))
                if y > 1:
                    _, lane = s[source].split(rest, factor=y)
                    s[source].bind(lane, te.thread_axis((0, y), "threadIdx.y"))
                if self.buffers > 1:
                    s[source].double_buffer(self.buffers, self.buffers > 2)  # by cp.async
            fragment = made[f"fragment_{order[0]}"] = s.cache_read(source, f"wmma.matrix_{order[0]}", [sums])
            s[fragment].compute_at(s[sums], kt)
            tile = (k, m if order == "at" else n) if order in ("at", "b") else (m if order == "a" else n, k)
            (xo, x), (yo, y_) = (s[fragment].split(axis, factor=part) for axis, part in zip(s[fragment].op.axis, tile, strict=True))
            s[fragment].reorder(xo, yo, x, y_)
            s[fragment].tensorize(x, self.intrinsic(order))
        return made

    def made(self):
        """A schedule, its arguments, and the stages."""
        operands = self.operands()
        out = self.compute(*operands)
        s = te.create_schedule(out.op)
        stages = self.schedule(s, operands, out)
        return s, [*operands, out], stages

    def arrays(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Operands, an output to be written, and what is expected there, exactly: integers of all sizes; floats that are small integers."""
        a, b = (whole_numbers(rng, [int(e) for e in t.shape], self.dtype) for t in self.operands())
        wide = np.int64 if "int" in self.dtype else np.float64
        expected = (a if self.a == "a" else a.T).astype(wide) @ (b if self.b == "b" else b.T).astype(wide)
        expected = expected if self.store == "store" else expected.T
        return a, b, np.full(expected.shape, 7, self.sums), expected


def whole_numbers(rng: np.random.Generator, shape, dtype: str) -> np.ndarray:
    if "int" in dtype:
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
    kind = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype
    return rng.integers(-3, 4, shape).astype(kind)


def random_product(rng: random.Random) -> Product:
    """Of either set."""
    if rng.random() < 0.4:
        found = Product(rng.choice(list(MMA)), None, b=rng.choice(("b", "bt")), shared=("a", "b"))
    else:
        kind = rng.choice(list(wmma.KINDS))
        shape = rng.choice(wmma.KINDS[kind].shapes)
        found = Product(kind, shape, rng.choice(("a", "at")), rng.choice(("b", "bt")), rng.choice(("store", "store", "store_t")))
        found.shared = rng.choice(((), (), ("a",), ("b",), ("a", "b")))
    found.tiles = rng.choice(((1, 1), (2, 1), (1, 2), (2, 2)))
    found.warps, found.steps, found.buffers = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2)), rng.choice((1, 1, 2, 3))
    m, n, k = found.mnk
    blocks = [rng.choice((1, 2)) for _ in range(3)]
    found.extents = (m * found.tiles[0] * found.warps * blocks[0], n * found.tiles[1] * blocks[1], k * found.steps * (blocks[2] + 1))
    return found
