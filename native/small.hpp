// Small products in one call: every operand is copied once, padded to whole register tiles, and lies in the first two
// levels of cache. No threads, no residues.
#pragma once

#include "product.hpp"

namespace gemmulate {

// Correctly rounded; a and b both float64 or both float32, target f64 or f32 alike, beside both. Returns false, with an
// unspecified output, for operands it was not made for: NaN, infinity, entries beyond 2^(+-300), many open elements,
// large matrices, instruction sets without FMA.
bool small_float_product(const Isa& isa, const View& a, const View& b, const Target& target, const Poll& poll);

// Where an integer product goes: strides in elements.
struct IntegerTarget {
  Type type;
  void* data;
  int64_t stride_i, stride_j;
};

// The integer product where it is known to fit the target (i64 or u64), which lies beside both operands; with a modulus
// its residues in [0, modulus) to i64; with `wrap` its low bits to any integer type. Returns false, with an unspecified
// output, where it may not fit, or where modulus, entries or matrices are too large: the general way decides then.
bool small_integer_product(const Isa& isa, const View& a, const View& b, const IntegerTarget& target, uint64_t modulus,
                           bool wrap);

}  // namespace gemmulate
