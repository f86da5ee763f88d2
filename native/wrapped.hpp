// Integer products modulo 2^32 and 2^64 by the machine's own wide multiplications.
#pragma once

#include "panels.hpp"

namespace gemmulate {

// Panels of the low `item` bytes (4 or 8) of each entry.
Panels pack_wrapped(const Isa& isa, bool left, const View& x, int item, int threads, const Poll& poll);

// A result modulo 2^(8 item), strides in elements of `item` bytes; unsigned numbers or two's complement.
struct WrappedTarget {
  void* data;
  int64_t stride_i, stride_j;
  bool is_unsigned;
};

// target = left * right modulo 2^(8 item). Returns the largest bit length of a result, its sign included.
int multiply_wrapped(const Panels& left, const Panels& right, const WrappedTarget& target, int threads,
                     const Poll& poll);

}  // namespace gemmulate
