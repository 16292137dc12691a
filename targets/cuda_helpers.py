"""CUDA functions that generated kernels call where one expression does not do: tensor cores, ldmatrix, cp.async, dp4a, small floats and their
arithmetic, atomic sums of them.

A source gets the functions that it uses and no others (`CudaHelpers`); they are inline PTX and need no include, as mma.h alone costs nvcc a
second. The PTX is for nvcc; where the emulator compiles the same source, its headers tilewright_ptx.h and tilewright_wmma.h have them in C++.
Fragment layouts are those of the PTX ISA, "Matrix Fragments for mma": see `fragment_element`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .c_types import SMALL_FLOATS

INLINE = "static __device__ __forceinline__ "

# tilewright's names of what tensor cores multiply -> the PTX ISA's
PTX_TYPES = {
    "float16": "f16", "bfloat16": "bf16", "tfloat32": "tf32", "int8": "s8", "uint8": "u8", "float8_e4m3": "e4m3", "float8_e5m2": "e5m2",
    "float32": "f32", "int32": "s32",
}  # fmt: skip


@dataclass(frozen=True)
class CudaHelper:
    """A device function. `arch`: the least compute capability (80 for sm_80) that has it, in hardware or by the fallback in its text."""

    signature: str
    body: tuple[str, ...]
    arch: int
    needs: tuple[str, ...] = ()
    template: str = ""
    header: str = "tilewright_ptx.h"  # of the emulator

    @property
    def name(self) -> str:
        """The function's, of its signature."""
        return self.signature.partition("(")[0].split()[-1]

    @property
    def text(self) -> str:
        head = f"{self.template}\n" if self.template else ""
        return head + "\n".join([f"{INLINE}{self.signature} {{", *(line if line.startswith("#") else f"    {line}" for line in self.body), "}\n"])


class CudaHelpers:
    """The helper functions that one source uses. Ask while generating bodies, then put `emit` before them."""

    def __init__(self) -> None:
        self._used: dict[str, None] = {}

    def use(self, name: str) -> str:
        """Ask for a function of `CUDA_HELPERS`; returns its name."""
        for other in CUDA_HELPERS[name].needs:
            self.use(other)
        self._used[name] = None
        return name

    def least_arch(self) -> int:
        """The least compute capability that everything used compiles for."""
        return max((CUDA_HELPERS[name].arch for name in self._used), default=0)

    def emit(self) -> str:
        """The CUDA text of everything used, each after what it needs; nothing if nothing is."""
        if not self._used:
            return ""
        functions = "\n".join(CUDA_HELPERS[name].text for name in self._used)
        headers = "".join(f"#include <{name}>\n" for name in dict.fromkeys(CUDA_HELPERS[name].header for name in self._used))
        return f"#ifdef EMULATOR_ARCH\n{headers}#else\n{functions}#endif\n"


def mma_name(shape: tuple[int, int, int], a: str, b: str, accumulator: str) -> str:
    """The function for a tensor-core product of dtypes: ((16, 8, 16), "float16", "float16", "float32") -> "tw_mma_m16n8k16_f16_f32".

    KeyError from `CUDA_HELPERS` where the PTX ISA has no such product. tf32 is "tfloat32".
    """
    m, n, k = shape
    first, second = PTX_TYPES[a], PTX_TYPES[b]
    operands = first if first == second else f"{first}_{second}"
    return f"tw_mma_m{m}n{n}k{k}_{operands}_{PTX_TYPES[accumulator]}"


def fragment_element(operand: str, bits: int, lane: int, i: int) -> tuple[int, int]:
    """(row, column) in its matrix of element `i` of the fragment that `lane` holds: of operand "a"[m, k], "b"[k, n] or "c"[m, n], in elements of
    `bits`, counted from the low bits of the first register. PTX ISA, "Matrix Fragments for mma" of shapes m16n8k*: lanes are eight groups of four;
    a register of `a` is a piece of row group (even registers) or group + 8 (odd ones), one of `b` of column group."""
    group, member = divmod(lane, 4)
    if operand == "c":
        return group + 8 * (i // 2), member * 2 + i % 2
    per_register = 32 // bits
    register, inside = divmod(i, per_register)
    if operand == "a":
        return group + 8 * (register % 2), (register // 2 * 4 + member) * per_register + inside
    return (register * 4 + member) * per_register + inside, group


# ------------------------------------------------------------------------------------------------------------------------ tensor cores


def _asm(instruction: str, outputs: Sequence[tuple[str, str]], inputs: Sequence[tuple[str, str]], tail: str = "") -> str:
    """An asm statement; operands are pairs of constraint and expression."""
    parts = [", ".join(f'"{constraint}"({word})' for constraint, word in operands) for operands in (outputs, inputs)]
    return f'asm volatile("{instruction}" : {parts[0]} : {parts[1]}{tail});'


def _group(first: int, count: int) -> str:
    """`count` operands of an asm statement as a vector: {%4, %5}."""
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


def _mma_body(shape: str, types: str, words: tuple[list[str], list[str], list[str], list[str]], accumulator: str) -> str:
    """One mma.sync. `words`: the registers of d, a, b, c."""
    d, a, b, c = words
    groups = [_group(sum(len(w) for w in words[:i]), len(words[i])) for i in range(4)]
    inputs = [*(("r", w) for w in a), *(("r", w) for w in b), *((accumulator, w) for w in c)]
    return _asm(f"mma.sync.aligned.{shape}.row.col.{types} {', '.join(groups)};", [(f"={accumulator}", w) for w in d], inputs)


def _words(name: str, *indices: int) -> list[str]:
    return [f"{name}[{i}]" for i in indices]


@dataclass(frozen=True)
class _Product:
    """A row of the table of mma shapes: registers of a and b, and the least capability of the instruction itself."""

    shape: str
    a: int
    b: int
    arch: int


def _mma(product: _Product, types: tuple[str, str], accumulator: str) -> tuple[str, CudaHelper]:
    """The helper of one product; below sm_80 those of smaller shapes take its place where there are such."""
    first, second = types
    ctype, constraint = {"f32": ("float", "f"), "s32": ("int", "r"), "f16": ("void", "r")}[accumulator]
    registers = 2 if accumulator == "f16" else 4
    name = f"tw_mma_{product.shape}_{first if first == second else f'{first}_{second}'}_{accumulator}"
    listed = ".".join([accumulator, first, second, accumulator])
    d, x, y, c = names = ("p", "x", "y", "q") if ctype == "void" else ("d", "x", "y", "c")  # registers as they are read in the asm statement
    views = [f"const unsigned *{x} = (const unsigned *)a, *{y} = (const unsigned *)b;"]
    if ctype == "void":
        views.append(f"unsigned *{d} = (unsigned *)d;")
        views.append(f"const unsigned *{c} = (const unsigned *)c;")
    all_words = (_words(d, *range(registers)), _words(x, *range(product.a)), _words(y, *range(product.b)), _words(c, *range(registers)))
    body = [_mma_body(product.shape, listed, all_words, constraint)]
    arch = product.arch
    older = _older_products(product.shape, listed, constraint, registers, names)
    if older:
        body = ["#if __CUDA_ARCH__ >= 800", *("    " + line for line in body), "#else", *older, "#endif"]
        arch = 75
    return name, CudaHelper(f"void {name}({ctype} *d, const void *a, const void *b, const {ctype} *c)", (*views, *body), arch)


def _older_products(shape: str, types: str, accumulator: str, registers: int, names: tuple[str, str, str, str]) -> list[str]:
    """The same product by the shapes of sm_75: fp16 m16n8k8 twice, int8 m8n8k16 for each half of the rows and of k."""
    d, x, y, c = names
    if shape == "m16n8k16" and types.split(".")[1] == "f16":
        whole = range(registers)
        return [
            _mma_body("m16n8k8", types, (_words(d, *whole), _words(x, 2 * k, 2 * k + 1), _words(y, k), _words((c, d)[k], *whole)), accumulator) for k in (0, 1)
        ]
    if shape in ("m16n8k16", "m16n8k32") and types.split(".")[1] in ("s8", "u8"):
        lines = []
        for k in range(1 if shape == "m16n8k16" else 2):
            for half in (0, 1):
                pair = (2 * half, 2 * half + 1)
                words = (_words(d, *pair), _words(x, 2 * k + half), _words(y, k), _words((c, d)[k], *pair))
                lines.append(_mma_body("m8n8k16", types, words, accumulator))
        return lines
    return []


def _tensor_core_helpers() -> dict[str, CudaHelper]:
    """PTX ISA, "Multiply-and-Accumulate Instruction: mma": the dense shapes with 16 rows and 8 columns."""
    halves, tf32 = (_Product("m16n8k8", 2, 1, 80), _Product("m16n8k16", 4, 2, 80)), (_Product("m16n8k4", 2, 1, 80), _Product("m16n8k8", 4, 2, 80))
    bytes_ = (_Product("m16n8k16", 2, 1, 80), _Product("m16n8k32", 4, 2, 80))
    made = [_mma(p, ("bf16", "bf16"), "f32") for p in halves] + [_mma(p, ("tf32", "tf32"), "f32") for p in tf32]
    for p in (_Product("m16n8k8", 2, 1, 75), halves[1]):
        made += [_mma(p, ("f16", "f16"), accumulator) for accumulator in ("f32", "f16")]
    made += [_mma(p, (first, second), "s32") for p in bytes_ for first in ("s8", "u8") for second in ("s8", "u8")]
    made += [_mma(_Product("m16n8k32", 4, 2, 89), (first, second), "f32") for first in ("e4m3", "e5m2") for second in ("e4m3", "e5m2")]
    return dict(made)


def _ldmatrix_helpers() -> dict[str, CudaHelper]:
    """Eight rows of 16 bytes a matrix; lane 8 * i + j gives the address of row j of matrix i."""
    result = {}
    for count in (1, 2, 4):
        for trans in ("", "_trans"):
            name = f"tw_ldmatrix_x{count}{trans}"
            instruction = f"ldmatrix.sync.aligned.m8n8.x{count}{trans.replace('_', '.')}.shared.b16 {_group(0, count)}, [%{count}];"
            load = _asm(instruction, [("=r", f"r[{i}]") for i in range(count)], [("r", "(unsigned)__cvta_generic_to_shared(row)")], ' : "memory"')
            result[name] = CudaHelper(f"void {name}(void *registers, const void *row)", ("unsigned *r = (unsigned *)registers;", load), 75)
    return result


# ------------------------------------------------------------------------------------------------------------------------- wmma

_WMMA_SHAPES = {"m16n16k16": (16, 16, 16), "m32n8k16": (32, 8, 16), "m8n32k16": (8, 32, 16), "m16n16k8": (16, 16, 8)}
_ORDERS = ("row", "col")


def _wmma_registers(shape: str, operand: str, type_: str) -> int:
    """Words of a lane: PTX ISA, "Matrix Fragments for WMMA"."""
    m, n, k = _WMMA_SHAPES[shape]
    if type_ == "f16":
        return 4 if operand == "d" else 8
    return {"a": m * k, "b": k * n, "d": m * n}[operand] * {"bf16": 2, "s8": 1, "u8": 1}.get(type_, 4) // 128


def _wmma_arch(name: str) -> int:
    return 80 if "bf16" in name or "m16n16k8_" in name else 75


def _wmma_access(name: str, signature: str, instruction: str, address: str, outputs: list[tuple[str, str]], inputs: list[tuple[str, str]]) -> CudaHelper:
    """A load or a store; the compiler knows which memory a pointer is to, and leaves the other branch out. In `instruction`, SPACE is for that."""
    lines = []
    for space, operand in (("shared", ("r", f"(unsigned)__cvta_generic_to_shared({address})")), ("global", ("l", f"__cvta_generic_to_global({address})"))):
        lines.append(_asm(instruction.replace("SPACE", space), outputs, [operand, *inputs], ' : "memory"'))
    ctype = "unsigned" if outputs else "const float" if inputs[0][0] == "f" else "const unsigned"
    view = f"{ctype} *r = ({ctype} *)registers;"
    return CudaHelper(f"void {name}({signature}, int stride)", (view, f"if (__isShared({address})) {lines[0]}", f"else {lines[1]}"),
                      _wmma_arch(name), header="tilewright_wmma.h")  # fmt: skip


def _wmma_load(shape: str, operand: str, order: str, type_: str) -> tuple[str, CudaHelper]:
    count, name = _wmma_registers(shape, operand, type_), f"tw_wmma_load_{operand}_{order}_{shape}_{type_}"
    instruction = f"wmma.load.{operand}.sync.aligned.{order}.{shape}.SPACE.{type_} {_group(0, count)}, [%{count}], %{count + 1};"
    outputs = [("=r", word) for word in _words("r", *range(count))]
    return name, _wmma_access(name, "void *registers, const void *source", instruction, "source", outputs, [("r", "stride")])


def _wmma_store(shape: str, order: str, type_: str) -> tuple[str, CudaHelper]:
    count, name = _wmma_registers(shape, "d", type_), f"tw_wmma_store_{order}_{shape}_{type_}"
    instruction = f"wmma.store.d.sync.aligned.{order}.{shape}.SPACE.{type_} [%0], {_group(1, count)}, %{count + 1};"
    words = [("f" if type_ == "f32" else "r", word) for word in _words("r", *range(count))]
    return name, _wmma_access(name, "void *target, const void *registers", instruction, "target", [], [*words, ("r", "stride")])


def _wmma_product(shape: str, orders: tuple[str, str], type_: str, sums: str) -> tuple[str, CudaHelper]:
    name = f"tw_wmma_mma_{orders[0]}_{orders[1]}_{shape}_{type_}_{sums}"
    types = f"{sums}.{sums}" if type_ == "f16" else f"{sums}.{type_}.{type_}.{sums}"
    counts = [_wmma_registers(shape, operand, type_ if operand in "ab" else sums) for operand in "dabd"]
    constraint, ctype = ("f", "float") if sums == "f32" else ("r", "unsigned")
    words = [_words(register, *range(count)) for register, count in zip("pxyq", counts, strict=True)]
    groups = ", ".join(_group(sum(counts[:i]), count) for i, count in enumerate(counts))
    inputs = [*(("r", word) for word in (*words[1], *words[2])), *((constraint, word) for word in words[3])]
    body = (f"{ctype} *p = ({ctype} *)d;", "const unsigned *x = (const unsigned *)a, *y = (const unsigned *)b;", f"const {ctype} *q = (const {ctype} *)c;",
            _asm(f"wmma.mma.sync.aligned.{'.'.join(orders)}.{shape}.{types} {groups};", [(f"={constraint}", word) for word in words[0]], inputs))  # fmt: skip
    return name, CudaHelper(f"void {name}(void *d, const void *a, const void *b, const void *c)", body, _wmma_arch(name),
                            header="tilewright_wmma.h")  # fmt: skip


def _wmma_helpers() -> dict[str, CudaHelper]:
    """PTX ISA, "Warp Level Matrix Multiply-Accumulate Operations Using wmma Instructions"."""
    made = []
    for type_, sums in (("f16", ("f32", "f16")), ("bf16", ("f32",)), ("s8", ("s32",)), ("u8", ("s32",)), ("tf32", ("f32",))):
        for shape in ["m16n16k8"] if type_ == "tf32" else [shape for shape in _WMMA_SHAPES if shape != "m16n16k8"]:
            made += [_wmma_load(shape, operand, order, type_) for operand in "ab" for order in _ORDERS]
            made += [_wmma_product(shape, (first, second), type_, each) for each in sums for first in _ORDERS for second in _ORDERS]
            made += [_wmma_store(shape, order, each) for each in sums for order in _ORDERS]
    return dict(made)


# ------------------------------------------------------------------------------------------------------------- asynchronous copies


def _copy_helpers() -> dict[str, CudaHelper]:
    """Below sm_80 they are plain copies, done at once: right, if slower. `bytes` of the zfill forms come from memory, the rest is zero."""
    result = {}
    addresses = '"r"((unsigned)__cvta_generic_to_shared(shared)), "l"(__cvta_generic_to_global(global))'
    for size, ctype, cache in ((4, "unsigned", "ca"), (8, "uint2", "ca"), (16, "uint4", "cg")):
        head = f"cp.async.{cache}.shared.global [%0], [%1], {size}"
        name = f"tw_cp_async_{size}"
        body = ["#if __CUDA_ARCH__ >= 800", f'    asm volatile("{head};" : : {addresses} : "memory");', "#else",
                f"    *({ctype} *)shared = *(const {ctype} *)global;", "#endif"]  # fmt: skip
        result[name] = CudaHelper(f"void {name}(void *shared, const void *global)", tuple(body), 75)
        name = f"tw_cp_async_zfill_{size}"
        body = ["#if __CUDA_ARCH__ >= 800", f'    asm volatile("{head}, %2;" : : {addresses}, "r"(bytes) : "memory");', "#else", "#pragma unroll",
                f"    for (int i = 0; i < {size}; ++i) ((char *)shared)[i] = i < bytes ? ((const char *)global)[i] : 0;", "#endif"]  # fmt: skip
        result[name] = CudaHelper(f"void {name}(void *shared, const void *global, int bytes)", tuple(body), 75)
    for name, template, text in (
        ("tw_cp_async_commit", "", 'asm volatile("cp.async.commit_group;" : : : "memory");'),
        ("tw_cp_async_wait", "template <int groups>", 'asm volatile("cp.async.wait_group %0;" : : "n"(groups) : "memory");'),
    ):
        result[name] = CudaHelper(f"void {name}()", ("#if __CUDA_ARCH__ >= 800", f"    {text}", "#endif"), 75, template=template)
    return result


# ------------------------------------------------------------------------------------------------------------------- arithmetic


def _dot_helpers() -> dict[str, CudaHelper]:
    """d = c + the dot product of four bytes and four bytes."""
    result = {}
    for first in ("s8", "u8"):
        for second in ("s8", "u8"):
            name = f"tw_dp4a_{first}" if first == second else f"tw_dp4a_{first}_{second}"
            types = f"{first[0]}32.{second[0]}32"
            t = "unsigned" if (first, second) == ("u8", "u8") else "int"
            body = (f"{t} d;", f'asm("dp4a.{types} %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));', "return d;")
            result[name] = CudaHelper(f"{t} {name}({'int' if first == 's8' else 'unsigned'} a, {'int' if second == 's8' else 'unsigned'} b, {t} c)", body, 75)
    return result


def _small_float_helpers() -> dict[str, CudaHelper]:
    """Small floats as bits to float32 and back, to nearest (ties to even); what is too large becomes an infinity, or NaN where there is none."""
    bits = "unsigned short"
    rounded = (
        "unsigned value = __float_as_uint(x);",
        f"return ({bits})(x != x ? value >> 16 | 0x40 : (value + 0x7fff + (value >> 16 & 1)) >> 16);",
    )
    bfloat = _by_arch(80, _assembled(bits, "cvt.rn.bf16.f32", "hf", "x"), rounded)
    result = {
        "tw_widen_float_float16": CudaHelper(f"float tw_widen_float_float16({bits} x)", _assembled("float", "cvt.f32.f16", "fh", "x"), 75),
        "tw_narrow_float_float16": CudaHelper(f"{bits} tw_narrow_float_float16(float x)", _assembled(bits, "cvt.rn.f16.f32", "hf", "x"), 75),
        "tw_widen_float_bfloat16": CudaHelper(f"float tw_widen_float_bfloat16({bits} x)", ("return __uint_as_float((unsigned)x << 16);",), 75),
        "tw_narrow_float_bfloat16": CudaHelper(f"{bits} tw_narrow_float_bfloat16(float x)", bfloat, 75),
    }
    tf32 = ("unsigned d;", 'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(d) : "f"(x));', "return __uint_as_float(d);")
    result["tw_round_tf32"] = CudaHelper("float tw_round_tf32(float x)", tf32, 80)
    for element in ("float8_e4m3", "float8_e5m2"):
        result[f"tw_widen_float_{element}"] = _widen_byte(element)
        result[f"tw_narrow_float_{element}"] = _narrow_byte(element)
    return result


_HALVES = {"float16": ("f16", 0x3C00, 75), "bfloat16": ("bf16", 0x3F80, 80)}  # -> the PTX ISA's name, the bits of 1, the least capability
_HALF_COMPARISONS = {"eq": ("eq", "=="), "ne": ("neu", "!="), "lt": ("lt", "<"), "le": ("le", "<=")}


def _half_helpers() -> dict[str, CudaHelper]:
    """Arithmetic of float16 and bfloat16 as bits, one or a word of two: rounded once (`.rn` is never contracted), denormals kept. The larger or smaller
    is NaN if either is; of two zeros +0 is the larger. A comparison of pairs gives ones in the halves where it holds."""
    made = [
        CudaHelper("unsigned int tw_pair(unsigned short a, unsigned short b)", ("return (unsigned int)a | (unsigned int)b << 16;",), 75),
        CudaHelper("unsigned int tw_select2(unsigned int where, unsigned int a, unsigned int b)", ("return (where & a) | (~where & b);",), 75),
    ]
    for element, (letters, one, arch) in _HALVES.items():
        for count, t, letter, kind, repeat in (("", "unsigned short", "h", letters, 1), ("2", "unsigned int", "r", f"{letters}x2", 0x10001)):
            for name in ("add", "sub", "mul", "min", "max"):
                head = f"{t} tw_{name}{count}_{element}({t} a, {t} b)"
                body, needs = _half_operation(name, element, t, letter, kind, one * repeat)
                made.append(CudaHelper(head, body, arch, needs))
            for name in ("neg", "abs"):
                made.append(CudaHelper(f"{t} tw_{name}{count}_{element}({t} a)", _assembled(t, f"{name}.{kind}", letter * 2, "a"), arch))
        made += [_half_comparison(name, element, is_pair) for name in _HALF_COMPARISONS for is_pair in (False, True)]
    for element, (letters, _, _) in _HALVES.items():
        name, narrow = f"tw_narrow_pair_{element}", f"tw_narrow_float_{element}"
        body = _by_arch(80, _assembled("unsigned int", f"cvt.rn.{letters}x2.f32", "rff", "b", "a"), (f"return tw_pair({narrow}(a), {narrow}(b));",))
        made.append(CudaHelper(f"unsigned int {name}(float a, float b)", body, 75, ("tw_pair", narrow)))
    return {helper.name: helper for helper in made}


def _half_operation(name: str, element: str, t: str, letter: str, kind: str, one: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The body of a + b and the like, and the helpers it needs. bfloat16 has multiply-adds only below sm_90: a * 1 + b, b * -1 + a, a * b - 0 are exact."""
    minus = 0x80008000 if letter == "r" else 0x8000
    if name in ("min", "max"):
        body = _assembled(t, f"{name}.NaN.{kind}", letter * 3, "a", "b")
        if element == "bfloat16":
            return body, ()
        if letter == "h":
            return _by_arch(80, body, (f"return (unsigned short)tw_{name}2_float16(a, b);",)), (f"tw_{name}2_float16",)
        order, equal = ("gt", "b & (a | ~same)") if name == "max" else ("lt", "b | (a & same)")
        masks = [f'asm("set.{test}.u32.f16x2 %0, %1, %2;" : "=r"({mask}) : "r"(a), "r"({other}));'
                 for mask, test, other in (("first", order, "b"), ("same", "eq", "b"), ("none", "nan", "a"))]  # fmt: skip
        return _by_arch(80, body, ("unsigned int first, same, none;", *masks, f"return ((first | none) & a) | (~(first | none) & ({equal}));")), ()
    body = _assembled(t, f"{name}.rn.{kind}", letter * 3, "a", "b")
    if element == "float16":
        return body, ()
    operands = {"add": ("a", f"({t}){one:#x}", "b"), "sub": ("b", f"({t}){one | minus:#x}", "a"), "mul": ("a", "b", f"({t}){minus:#x}")}[name]
    return _by_arch(90, body, _assembled(t, f"fma.rn.{kind}", letter * 4, *operands)), ()


def _half_comparison(name: str, element: str, is_pair: bool) -> CudaHelper:
    """Of one, a bool; of pairs, a mask. bfloat16 is compared as float32 below sm_90."""
    letters, _, arch = _HALVES[element]
    test, sign = _HALF_COMPARISONS[name]
    one, widen = f"tw_{name}_{element}", f"tw_widen_float_{element}"
    if is_pair:
        body: tuple[str, ...] = _assembled("unsigned int", f"set.{test}.u32.{letters}x2", "rrr", "a", "b")
        halves = f"return ({one}(a, b) ? 0xffffu : 0) | ({one}(a >> 16, b >> 16) ? 0xffff0000u : 0);"
        head = f"unsigned int tw_{name}2_{element}(unsigned int a, unsigned int b)"
        return CudaHelper(head, _by_arch(90, body, (halves,)), arch, (one,)) if element == "bfloat16" else CudaHelper(head, body, arch)
    compare = f"{{.reg .pred p; setp.{test}.{letters} p, %1, %2; selp.u16 %0, 1, 0, p;}}"
    body = ("unsigned short d;", f'asm("{compare}" : "=h"(d) : "h"(a), "h"(b));', "return d != 0;")
    head = f"bool {one}(unsigned short a, unsigned short b)"
    if element == "float16":
        return CudaHelper(head, body, arch)
    return CudaHelper(head, _by_arch(90, body, (f"return {widen}(a) {sign} {widen}(b);",)), arch, (widen,))


def _assembled(t: str, instruction: str, letters: str, *operands: str) -> tuple[str, ...]:
    """The body that returns what one instruction makes of the operands. `letters`: the constraints of its result and of each."""
    given = ", ".join(f'"{letter}"({operand})' for letter, operand in zip(letters[1:], operands, strict=True))
    places = ", ".join(f"%{i}" for i in range(len(letters)))
    return f"{t} d;", f'asm("{instruction} {places};" : "={letters[0]}"(d) : {given});', "return d;"


def _by_arch(least: int, new: Sequence[str], old: Sequence[str]) -> tuple[str, ...]:
    return (f"#if __CUDA_ARCH__ >= {least * 10}", *(f"    {line}" for line in new), "#else", *(f"    {line}" for line in old), "#endif")


def _widen_byte(element: str) -> CudaHelper:
    """A multiplication puts the exponent right, and makes denormals normal."""
    mantissa, bias, too_large, nan = SMALL_FLOATS[element]
    special = "0x7fffffffu" if too_large == nan else f"(x & 0x7f) > {too_large:#x} ? 0x7fffffffu : 0x7f800000u"
    return CudaHelper(
        f"float tw_widen_float_{element}(unsigned char x)",
        (f"unsigned value = __float_as_uint(__uint_as_float((x & 0x7fu) << {23 - mantissa}) * {float(2 ** (127 - bias))!r}f);",
         f"if ((x & 0x7f) >= {too_large:#x}) value = {special};",
         "return __uint_as_float(value | (x & 0x80u) << 24);"), 75)  # fmt: skip


def _narrow_byte(element: str) -> CudaHelper:
    """Normal results round in integers; adding a float whose last place is the least denormal rounds the rest."""
    mantissa, bias, too_large, nan = SMALL_FLOATS[element]
    drop, least_normal, magic = 23 - mantissa, (128 - bias) << 23, (127 - bias - mantissa + 1 + 23) << 23
    return CudaHelper(
        f"unsigned char tw_narrow_float_{element}(float x)",
        ("unsigned value = __float_as_uint(x), sign = value >> 31 << 7, code;",
         "value &= 0x7fffffffu;",
         f"if (value > 0x7f800000u) code = {nan:#x};",
         f"else if (value < {least_normal:#x}u) code = __float_as_uint(__uint_as_float(value) + __uint_as_float({magic:#x}u)) - {magic:#x}u;",
         f"else code = (value - {(127 - bias) << 23:#x}u + {(1 << (drop - 1)) - 1:#x} + (value >> {drop} & 1)) >> {drop};",
         f"return (code > {too_large:#x} && value <= 0x7f800000u ? {too_large:#x} : code) | sign;"), 75)  # fmt: skip


def _atomic_helpers() -> dict[str, CudaHelper]:
    """Sums of small floats, which are kept as bits. Where a bfloat16 is not added in one instruction, the sum is tried until nobody came between."""

    def instruction(kind: str) -> str:
        return f'asm volatile("red.add.noftz.{kind} [%0], %1;" : : "l"(address), "h"(x) : "memory");'

    tried = (
        "unsigned short old = *(volatile unsigned short *)address, expected;",
        "do {",
        "    expected = old;",
        "    old = atomicCAS(address, expected, tw_narrow_float_bfloat16(tw_widen_float_bfloat16(expected) + tw_widen_float_bfloat16(x)));",
        "} while (old != expected);",
    )
    head = "void tw_atomic_add_{}(unsigned short *address, unsigned short x)"
    conversions = ("tw_widen_float_bfloat16", "tw_narrow_float_bfloat16")
    bfloat = ("#if __CUDA_ARCH__ >= 900", f"    {instruction('bf16')}", "#else", *(f"    {line}" for line in tried), "#endif")
    return {
        "tw_atomic_add_float16": CudaHelper(head.format("float16"), (instruction("f16"),), 75),
        "tw_atomic_add_bfloat16": CudaHelper(head.format("bfloat16"), bfloat, 75, needs=conversions),
    }


CUDA_HELPERS: dict[str, CudaHelper] = {
    **_tensor_core_helpers(),
    **_ldmatrix_helpers(),
    **_wmma_helpers(),
    **_copy_helpers(),
    **_dot_helpers(),
    **_small_float_helpers(),
    **_atomic_helpers(),
    **_half_helpers(),
}
