"""What the vector math functions compute: constants, polynomials, and one entry per function with its method and its measured error.

The bodies are C with placeholders, written once for both element types and for any number of lanes:

    F, U, I, S        the vector of values; the unsigned vector as wide (bits, masks 0 or ~0); what a predicate gives; the type of one lane
    $name(...)        another function of this table
    NAME              a constant of the element type (a plain number on the other side of an operator is spread over the lanes)
    F p = polynomial(NAME, x);     Horner's scheme
    lanewise(f, x)    C's own function on each lane

No comparison or conversion is used that one of gcc and clang lacks for vectors in C: a choice is made by masks ($select), and an integer
becomes a float, or a float rounds to an integer, by adding 1.5 * 2^23 (float64: 1.5 * 2^52) and looking at the low bits.

Coefficients are minimax fits of our own (Remez exchange in 60 digits; each coefficient is rounded, then the rest are fitted again);
benchmarks/minimax.py computes them. Errors are in units in the last place of the exact result (below the normal range: of the smallest
denormal); benchmarks/math_functions.py measures them. Over all 2^32 float32 arguments, with fused multiply-add: exp 0.914, exp2 0.879,
log 0.940, log2 1.537, log1p 1.493, tanh 2.533, sigmoid 2.402, erf 1.102, sin 1.532, cos 1.537, rsqrt 1.491; float64 over a sample: exp 0.90,
exp2 1.34, log 1.15, log2 1.45, log1p 1.52, tanh 2.47, sigmoid 2.28, erf 2.02, sin 1.48, cos 1.48, rsqrt 1.49.
"""

from __future__ import annotations

from dataclasses import dataclass, field

CONSTANTS: dict[str, dict[str, float | int]] = {
    "float32": {
        "MANTISSA_BITS": 23,
        "SIGN_BIT": 0x80000000,
        "TO_SIGN_BIT": 30,  # from bit 1
        "ONE_BITS": 0x3F800000,
        "EXPONENT_BIAS": 127,
        "MAGIC": 12582912.0,  # 1.5 * 2^23
        "MAGIC_BITS": 0x4B400000,
        "INFINITE": float("inf"),
        "NOT_A_NUMBER": float("nan"),
        "LOG2E": 1.4426950408889634,
        "LOG2E_HIGH": float.fromhex("0x1.715476p+0"),
        "LOG2E_LOW": 1.9259629911266175e-08,
        "LN2_HIGH": float.fromhex("0x1.62e4p-1"),  # 15 bits: its product with an exponent is exact
        "LN2_LOW": float.fromhex("0x1.7f7d1cf79abcap-20"),
        "EXP_LOW": -104.0,  # below, the result rounds to 0
        "EXP_HIGH": 89.0,  # above, it overflows
        "EXP2_LOW": -151.0,
        "EXP2_HIGH": 129.0,
        "TANH_LIMIT": 9.5,  # tanh is 1 from here on
        "ERF_SPLIT": 0.9,
        "ERF_LIMIT": 4.0,  # erf is 1 from here on
        "ERF_CENTRE": 0.0,
        "SMALLEST_NORMAL": float.fromhex("0x1p-126"),
        "DENORMAL_SHIFT": 25.0,
        "DENORMAL_SCALE": float.fromhex("0x1p25"),
        "SQRT_HALF_TO_ONE": 0x3F800000 - 0x3F3504F3,  # distance of the bit patterns of sqrt(1/2) and 1
        "LOG1P_LARGE": float.fromhex("0x1p60"),
        "TWO_OVER_PI": 0.6366197723675814,
        "HALF_PI_1": float.fromhex("0x1.92p+0"),  # the first three: exact products with a quadrant below 2^12,
        "HALF_PI_2": float.fromhex("0x1.fb4p-12"),  # the first two: exact differences
        "HALF_PI_3": float.fromhex("0x1.444p-24"),
        "HALF_PI_4": float.fromhex("0x1.68c234c4c6629p-39"),
        "TRIG_LIMIT": 6000.0,
    },
    "float64": {
        "MANTISSA_BITS": 52,
        "SIGN_BIT": 1 << 63,
        "TO_SIGN_BIT": 62,
        "ONE_BITS": 0x3FF0000000000000,
        "EXPONENT_BIAS": 1023,
        "MAGIC": 6755399441055744.0,  # 1.5 * 2^52
        "MAGIC_BITS": 0x4338000000000000,
        "INFINITE": float("inf"),
        "NOT_A_NUMBER": float("nan"),
        "LOG2E": 1.4426950408889634,
        "LOG2E_HIGH": 1.4426950408889634,
        "LOG2E_LOW": 2.0355273740931033e-17,
        "LN2_HIGH": float.fromhex("0x1.62e42fefa38p-1"),  # 42 bits
        "LN2_LOW": float.fromhex("0x1.ef35793c76730p-45"),
        "EXP_LOW": -746.0,
        "EXP_HIGH": 710.0,
        "EXP2_LOW": -1076.0,
        "EXP2_HIGH": 1025.0,
        "TANH_LIMIT": 20.0,
        "ERF_SPLIT": 1.0,
        "ERF_LIMIT": 5.93,
        "ERF_CENTRE": 2.75,
        "SMALLEST_NORMAL": float.fromhex("0x1p-1022"),
        "DENORMAL_SHIFT": 54.0,
        "DENORMAL_SCALE": float.fromhex("0x1p54"),
        "SQRT_HALF_TO_ONE": 0x3FF0000000000000 - 0x3FE6A09E667F3BCD,
        "LOG1P_LARGE": float.fromhex("0x1p120"),
        "TWO_OVER_PI": 0.6366197723675814,
        "HALF_PI_1": float.fromhex("0x1.921fb544p+0"),  # the first three: exact products with a quadrant below 2^20,
        "HALF_PI_2": float.fromhex("0x1.0b46p-34"),  # the first two: exact differences
        "HALF_PI_3": float.fromhex("0x1.1a62633p-54"),
        "HALF_PI_4": float.fromhex("0x1.45c06e0e68948p-86"),
        "TRIG_LIMIT": 1.0e6,
    },
}

# Lowest coefficient first; what is approximated, on which interval, and the largest error of the fit relative to the function it serves.
# fmt: off
POLYNOMIALS: dict[str, dict[str, tuple[float, ...]]] = {
    "float32": {
        # (e^r - 1 - r) / r^2 on |r| <= ln(2)/2: 2^-26.1 of e^r - 1
        "EXP": (0.49999997, 0.16666546, 0.041667435, 0.008366272, 0.0013870692),
        # (2^r - 1) / r on |r| <= 1/2: 2^-28.3 of 2^r
        "EXP2": (0.6931472, 0.24022648, 0.0555036, 0.009618506, 0.0013390812, 0.00015326498),
        # (log(1 + f) - f + f^2/2) / f^3 on sqrt(1/2) <= 1 + f <= sqrt(2): 2^-27.3 of log(1 + f)
        "LOG": (0.3333333, -0.25000829, 0.20001274, -0.16623157, 0.14200617, -0.1316097, 0.12769435, -0.076417506),
        # erf(x)/x - 1 in z = x^2 on x <= 0.9: 2^-26.1 of erf(x)
        "ERF": (0.12837915, -0.37612504, 0.11281922, -0.026770493, 0.004998959, -0.00060207996),
        # log(1 - erf(x)) on 0.9 <= x <= 4: 2^-29.1 of erf(x)
        "LOG_ERFC": (-0.00016509992, -1.1278028, -0.6369666, -0.104122065, 0.022319287, -0.0030665244, 0.00019832714),
        # (sin(r)/r - 1) / z in z = r^2 on |r| <= pi/4: 2^-27.8 of sin(r)
        "SIN": (-0.16666654, 0.008332106, -0.00019507892),
        # (cos(r) - 1 + z/2) / z^2 in z = r^2 on |r| <= pi/4: 2^-32.9 of cos(r)
        "COS": (0.041666646, -0.0013887305, 2.4431425e-05),
    },
    "float64": {
        # the same: 2^-55.4 of e^r - 1
        "EXP": (
            0.5000000000000006, 0.16666666666666674, 0.041666666666580685, 0.00833333333334869, 0.0013888888929791696,
            0.00019841269788046126, 2.4801507438021424e-05, 2.7557358266264896e-06, 2.7625220126967204e-07, 2.506644820842063e-08,
        ),
        # the same: 2^-57.8 of 2^r
        "EXP2": (
            0.6931471805599453, 0.24022650695910108, 0.05550410866482172, 0.009618129107601583, 0.0013333558146546441,
            0.00015403530449079953, 1.5252733633864686e-05, 1.3215438807861765e-06, 1.0178160060697539e-07, 7.073238723091328e-09,
            4.438867077514936e-10,
        ),
        # (log((1 + s)/(1 - s)) - 2 s) / s^3 in z = s^2, s = f / (2 + f): 2^-59.5 of log(1 + f)
        "LOG": (
            0.6666666666666735, 0.39999999999408736, 0.28571428743913907, 0.22222198399745516, 0.1818357407641909,
            0.15313784382494344, 0.14798767055285914,
        ),
        # the same on x <= 1: 2^-56.0 of erf(x)
        "ERF": (
            0.12837916709551256, -0.37612638903183404, 0.11283791670941733, -0.02686617064301228, 0.00522397760706669,
            -0.0008548326034150051, 0.0001205529793493884, -1.4924811965916512e-05, 1.6448492610437605e-06,
            -1.6217391216210242e-07, 1.3760652102648468e-08, -7.874048440862414e-10,
        ),
        # the same in x - 2.75 on 1 <= x <= 5.93: 2^-57.6 of erf(x)
        "LOG_ERFC": (
            -9.204140410324289, -5.826535955024863, -0.9512867412805817, -0.008933257054765793, 0.001705015777715336,
            -0.00032065932342336924, 5.759304133181753e-05, -9.58065842979297e-06, 1.4048795590512033e-06,
            -1.6012980189324954e-07, 6.045154670313966e-09, 3.798443540622891e-09, -1.4006872053202392e-09, 4.356731962469622e-10,
            -1.3468668551461185e-10, -1.0832204519332826e-11, -1.7099125871240745e-12, 4.089064782151105e-12,
            1.0602505358274977e-12,
        ),
        # the same: 2^-57.8 of sin(r)
        "SIN": (
            -0.1666666666666663, 0.008333333333321745, -0.00019841269829238512, 2.755731348673476e-06, -2.505072511183239e-08,
            1.5894842369038172e-10,
        ),
        # the same: 2^-63.8 of cos(r)
        "COS": (
            0.04166666666666659, -0.0013888888888872186, 2.4801587288297392e-05, -2.7557314016414565e-07, 2.0875678356537833e-09,
            -1.135735542554102e-11,
        ),
    },
}
# fmt: on


@dataclass(frozen=True)
class MathFunction:
    """One function of the library.

    Attributes: `result`: F, U, I or `int`; `parameters`: C parameters; `body`: C with placeholders, one text, or one each for
    {"vector", "scalar"} or for {"float32", "float64"}; `method`: where the algorithm comes from; `max_ulp`: bound of the error by element
    type, a little above the worst measured, with and without fused multiply-add (0.5: correctly rounded, 0: exact); `public`: kernels may
    call it, else only functions here do.
    """

    result: str
    parameters: tuple[str, ...]
    body: str | dict[str, str]
    method: str = ""
    max_ulp: dict[str, float] = field(default_factory=dict)

    @property
    def public(self) -> bool:
        return bool(self.method)


_ONE = ("F x",)
_TWO = ("F a", "F b")
_EXACT = {"float32": 0.0, "float64": 0.0}
_ROUNDED = {"float32": 0.5, "float64": 0.5}

FUNCTIONS: dict[str, MathFunction] = {
    # ---- bits and masks
    "bits": MathFunction("U", _ONE, {"vector": "return (U)x;", "scalar": "union { F value; U bits; } both = {x};\nreturn both.bits;"}),
    "from_bits": MathFunction("F", ("U x",), {"vector": "return (F)x;", "scalar": "union { U bits; F value; } both = {x};\nreturn both.value;"}),
    "splat": MathFunction("F", ("S x",), {"vector": "return x - (F){0};", "scalar": "return x;"}),
    "less": MathFunction("I", _TWO, "return a < b;"),
    "equal": MathFunction("I", _TWO, "return a == b;"),
    "select": MathFunction("F", ("I mask", *_TWO), {"vector": "return (F)(((I)a & mask) | ((I)b & ~mask));", "scalar": "return mask ? a : b;"}),
    # a < b ? x : y; the comparison inside the expression lets gcc blend constants too, where a mask from outside costs three operations
    "select_less": MathFunction(
        "F",
        (*_TWO, "F x", "F y"),
        {"vector": "return (F)(((I)x & (a < b)) | ((I)y & ~(a < b)));", "scalar": "return a < b ? x : y;"},
    ),
    # a > b ? a : b and a < b ? a : b: b where either is NaN, which is what x86's instructions do
    "larger": MathFunction("F", _TWO, {"vector": "machine(max, a, b)\nreturn $select_less(b, a, a, b);", "scalar": "return a > b ? a : b;"}),
    "smaller": MathFunction("F", _TWO, {"vector": "machine(min, a, b)\nreturn $select_less(a, b, a, b);", "scalar": "return a < b ? a : b;"}),
    "copy_sign": MathFunction("F", ("F x", "F sign"), "return $from_bits($bits(x) | ($bits(sign) & SIGN_BIT));"),  # x is not negative
    # ---- rounding, absolute values
    "abs": MathFunction("F", _ONE, "return $from_bits($bits(x) & ~SIGN_BIT);", "clears the sign bit", _EXACT),
    "sqrt": MathFunction("F", _ONE, "return lanewise(sqrt, x);", "the machine's instruction", _ROUNDED),
    "rsqrt": MathFunction("F", _ONE, "return 1.0 / $sqrt(x);", "1 / sqrt(x), each correctly rounded", {"float32": 1.5, "float64": 1.5}),
    "floor": MathFunction("F", _ONE, "return lanewise(floor, x);", "the machine's instruction", _EXACT),
    "ceil": MathFunction("F", _ONE, "return lanewise(ceil, x);", "the machine's instruction", _EXACT),
    "trunc": MathFunction("F", _ONE, "return lanewise(trunc, x);", "the machine's instruction", _EXACT),
    "round": MathFunction("F", _ONE, "return lanewise(rint, x);", "the machine's instruction; halves go to the even neighbour", _EXACT),
    "fma": MathFunction("F", ("F a", "F b", "F c"), "return lanewise(fma, a, b, c);", "the machine's instruction, else C's fma: rounded once", _ROUNDED),
    "isnan": MathFunction("I", _ONE, "return x != x;", "a comparison", _EXACT),
    "isinf": MathFunction("I", _ONE, "return $equal($abs(x), $splat(INFINITE));", "a comparison", _EXACT),
    "isfinite": MathFunction("I", _ONE, "return $less($abs(x), $splat(INFINITE));", "a comparison; false for NaN", _EXACT),
    # ---- exponentials
    "limit": MathFunction(  # NaN passes
        "F",
        ("F x", "S low", "S high"),
        "return $smaller($splat(high), $larger($splat(low), x));",
    ),
    "reduce_exp": MathFunction(  # x = n ln(2) + r: stores MAGIC + n, returns r; n is an integer and |r| <= ln(2)/2
        "F",
        ("F x", "F *shifted"),
        """
*shifted = x * LOG2E + MAGIC;
F n = *shifted - MAGIC;
F r = x - n * LN2_HIGH;
return r - n * LN2_LOW;""",
    ),
    "exp_fraction": MathFunction("F", ("F r",), "F q = polynomial(EXP, r);\nq = q * r + 1.0;\nreturn q * r + 1.0;"),  # e^r
    "scale": MathFunction(  # p 2^n for shifted = MAGIC + n, in two factors: 2^n may lie outside the normal range, and p 2^n is rounded once
        "F",
        ("F p", "F shifted"),
        """
U exponent = $bits(shifted) - (MAGIC_BITS - 2 * EXPONENT_BIAS);
U half = exponent >> 1;
p = p * $from_bits(half << MANTISSA_BITS);
return p * $from_bits((exponent - half) << MANTISSA_BITS);""",
    ),
    "power_of_two": MathFunction(  # 2^n for shifted = MAGIC + n, where it is a normal number
        "F", ("F shifted",), "return $from_bits(($bits(shifted) - (MAGIC_BITS - EXPONENT_BIAS)) << MANTISSA_BITS);"
    ),
    "exp": MathFunction(
        "F",
        _ONE,
        """
F shifted;
F r = $reduce_exp($limit(x, EXP_LOW, EXP_HIGH), &shifted);
return $scale($exp_fraction(r), shifted);""",
        "Cody and Waite's reduction by ln 2 in two parts, minimax polynomial",
        {"float32": 1.2, "float64": 1.3},
    ),
    "exp_bounded": MathFunction(  # exp where the result is a normal number
        "F", _ONE, "F shifted;\nF r = $reduce_exp(x, &shifted);\nreturn $exp_fraction(r) * $power_of_two(shifted);"
    ),
    "exp2": MathFunction(
        "F",
        _ONE,
        """
x = $limit(x, EXP2_LOW, EXP2_HIGH);
F shifted = x + MAGIC;
F r = x - (shifted - MAGIC);
F q = polynomial(EXP2, r);
return $scale(q * r + 1.0, shifted);""",
        "exact reduction to |r| <= 1/2, minimax polynomial",
        {"float32": 1.2, "float64": 1.7},
    ),
    "expm1_bounded": MathFunction(  # e^x - 1 where e^x is a normal number
        "F",
        _ONE,
        """
F shifted;
F r = $reduce_exp(x, &shifted);
F q = polynomial(EXP, r);
q = q * r;
q = q * r + r;
F power = $power_of_two(shifted);
return q * power + (power - 1.0);""",
    ),
    "tanh": MathFunction(
        "F",
        _ONE,
        """
F a = $abs(x);
a = $smaller($splat(TANH_LIMIT), a);
F t = $expm1_bounded(a + a);
return $copy_sign(t / (t + 2.0), x);""",
        "t / (t + 2), t = e^(2|x|) - 1",
        {"float32": 2.7, "float64": 2.7},
    ),
    "sigmoid": MathFunction(
        "F",
        _ONE,
        """
F shifted;
F r = $reduce_exp($larger($splat(EXP_LOW), -$abs(x)), &shifted);
F e = $scale($exp_fraction(r), shifted);
F numerator = $select_less(x, $splat(0.0), e, $splat(1.0));
return numerator / (1.0 + e);""",
        "e = e^-|x|: 1 / (1 + e), and e / (1 + e) where x < 0, which keeps the small results",
        {"float32": 2.6, "float64": 2.6},
    ),
    "erf": MathFunction(
        "F",
        _ONE,
        """
F a = $abs(x);
F z = a * a;
F q = polynomial(ERF, z);
F small = q * a + a;
F c = $smaller($splat(ERF_LIMIT), a) - ERF_CENTRE;
F p = polynomial(LOG_ERFC, c);
F large = 1.0 - $exp_bounded(p);
return $copy_sign($select_less(a, $splat(ERF_SPLIT), small, large), x);""",
        "odd minimax polynomial for small arguments, else 1 - e^p with p a minimax polynomial for log(1 - erf)",
        {"float32": 1.4, "float64": 2.9},
    ),
    # ---- logarithms
    # k + EXPONENT_BIAS, where x = 2^k (1 + f)
    "log_exponent": MathFunction("U", ("U bits",), "return (bits + SQRT_HALF_TO_ONE) >> MANTISSA_BITS;"),
    "from_integer": MathFunction("F", ("U x",), "return $from_bits(x + MAGIC_BITS) - MAGIC;"),  # a small integer of either sign as a float
    "log_fraction": MathFunction(  # log(1 + f) for sqrt(1/2) <= 1 + f <= sqrt(2)
        "F",
        ("F f",),
        {
            "float32": "F q = polynomial(LOG, f);\nq = q * f - 0.5;\nreturn q * (f * f) + f;",
            "float64": "F s = f / (f + 2.0);\nF z = s * s;\nF q = polynomial(LOG, z);\nreturn s * (q * z - f) + f;",
        },
    ),
    "log_special": MathFunction(  # `value`, except where log(x) is not finite
        "F",
        ("F x", "F value"),
        """
F outside = $select($equal(x, $splat(0.0)), $splat(-INFINITE), $splat(NOT_A_NUMBER));
value = $select_less(x, $splat(INFINITE), value, x);
return $select_less($splat(0.0), x, value, outside);""",
    ),
    "reduce_log": MathFunction(  # x = 2^k (1 + f): stores k, returns f
        "F",
        ("F x", "F *k"),
        """
I denormal = $less(x, $splat(SMALLEST_NORMAL));
U bits = $bits($select(denormal, x * DENORMAL_SCALE, x));
U exponent = $log_exponent(bits);
*k = $from_integer(exponent - EXPONENT_BIAS) - $select(denormal, $splat(DENORMAL_SHIFT), $splat(0.0));
return $from_bits(bits - (exponent << MANTISSA_BITS) + ONE_BITS) - 1.0;""",
    ),
    "log": MathFunction(
        "F",
        _ONE,
        """
F k;
F f = $reduce_log(x, &k);
F low = k * LN2_LOW + $log_fraction(f);
return $log_special(x, k * LN2_HIGH + low);""",
        "x = 2^k (1 + f); float32: minimax polynomial in f; float64: f - s f + s^3 (...) with s = f/(2 + f), from log(1 + f) = 2 artanh(s)",
        {"float32": 1.0, "float64": 1.4},
    ),
    "log2": MathFunction(
        "F",
        _ONE,
        """
F k;
F f = $reduce_log(x, &k);
F natural = $log_fraction(f);
F low = natural * LOG2E_LOW + k;
return $log_special(x, natural * LOG2E_HIGH + low);""",
        "as log, times 1/ln(2) in two parts",
        {"float32": 1.7, "float64": 1.8},
    ),
    "log1p": MathFunction(
        "F",
        _ONE,
        """
F u = x + 1.0;
U exponent = $log_exponent($bits(u)) - EXPONENT_BIAS;
F k = $from_integer(exponent);
F power = $from_bits((EXPONENT_BIAS - exponent) << MANTISSA_BITS);
F f = x * power + (power - 1.0);
F f_large = $from_bits($bits(u) - (exponent << MANTISSA_BITS)) - 1.0;
f = $select_less(x, $splat(LOG1P_LARGE), f, f_large);
F low = k * LN2_LOW + $log_fraction(f);
return $select($equal(x, $splat(0.0)), x, $log_special(u, k * LN2_HIGH + low));""",
        "as log, with k from 1 + x but f = 2^-k x + (2^-k - 1), which loses nothing of x",
        {"float32": 1.6, "float64": 1.7},
    ),
    # ---- trigonometry
    "reduce_trig": MathFunction(  # a = q pi/2 + r: stores q (its low bits), returns r, |r| <= pi/4
        "F",
        ("F a", "U *quadrant"),
        """
F shifted = a * TWO_OVER_PI + MAGIC;
F n = shifted - MAGIC;
*quadrant = $bits(shifted);
F r = a - n * HALF_PI_1;
r = r - n * HALF_PI_2;
F rounded = r - n * HALF_PI_3;
F lost = (r - rounded) - n * HALF_PI_3;
return rounded + (lost - n * HALF_PI_4);""",
    ),
    "sin_of_quadrant": MathFunction(  # sin(q pi/2 + r)
        "F",
        ("F r", "U quadrant"),
        """
F z = r * r;
F s = polynomial(SIN, z);
s = s * z;
s = s * r + r;
F c = polynomial(COS, z);
c = c * z - 0.5;
c = c * z + 1.0;
F value = $select((quadrant & 1) != 0, c, s);
return $from_bits($bits(value) ^ ((quadrant & 2) << TO_SIGN_BIT));""",
    ),
    "any": MathFunction(
        "int",
        ("I mask",),
        {
            "vector": "typedef uint64_t words __attribute__((vector_size(sizeof(U))));\nwords w = (words)mask;\nreturn (any_word(w)) != 0;",
            "scalar": "return mask != 0;",
        },
    ),
    "sin": MathFunction(
        "F",
        _ONE,
        """
F a = $abs(x);
U quadrant;
F r = $reduce_trig(a, &quadrant);
F value = $sin_of_quadrant(r, quadrant);
value = $from_bits($bits(value) ^ ($bits(x) & SIGN_BIT));
I huge = $less($splat(TRIG_LIMIT), a);
if (__builtin_expect($any(huge), 0))
    value = $select(huge, lanewise(sin, x), value);
return value;""",
        "Cody and Waite's reduction by pi/2 in four parts, minimax polynomials; C's sin for huge arguments",
        {"float32": 1.7, "float64": 1.7},
    ),
    "cos": MathFunction(
        "F",
        _ONE,
        """
F a = $abs(x);
U quadrant;
F r = $reduce_trig(a, &quadrant);
F value = $sin_of_quadrant(r, quadrant + 1);
I huge = $less($splat(TRIG_LIMIT), a);
if (__builtin_expect($any(huge), 0))
    value = $select(huge, lanewise(cos, x), value);
return value;""",
        "as sin, a quadrant on",
        {"float32": 1.7, "float64": 1.7},
    ),
    "pow": MathFunction("F", _TWO, "return lanewise(pow, a, b);", "C's pow on each lane", {"float32": 1.5, "float64": 1.5}),
}
