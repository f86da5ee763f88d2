// Products modulo p <= 2^21 by digits: x mod p = sum_d x_d 2^(bits d), each digit a byte, so that few INT8 products of
// digits make up the product.
//
// Digits of 8 bits: one for p <= 2^8, two for p <= 2^16, and every pair of them is a product: 1 and 4. Digits of 7 bits
// leave room for the sums of two digits, and x_d y_e + x_e y_d = (x_d + x_e)(y_d + y_e) - x_d y_d - x_e y_e (Karatsuba
// and Ofman 1962): 3 products for p <= 2^14, 6 for p <= 2^21. The left operand has digits that are not negative (u8: at
// most 255, sums at most 254), the right one balanced ones (s8: -128 ... 127, sums -128 ... 126).
#pragma once

#include "operand.hpp"
#include "product.hpp"

namespace gemmulate {

struct DigitSystem {
  uint64_t p;
  int bits, digits;  // (8, 1), (8, 2), (7, 2) or (7, 3) with p <= 2^(bits digits)

  int planes() const { return bits == 8 ? digits : digits * (digits + 1) / 2; }
  // The largest representative of the right operand: all its digits at their largest.
  int64_t balanced_high() const {
    int64_t high = 0;
    for (int d = 0; d < digits; ++d) high += ((int64_t{1} << (bits - 1)) - 1) << (bits * d);
    return std::min(high, static_cast<int64_t>(p) - 1);
  }
};

// One plane of bytes for each digit or sum of digits of x mod p.
Operand pack_digits(const Isa& isa, bool left, const View& x, const DigitSystem& system, int threads, const Poll& poll);
// The product mod p in [0, p), kind mod.
void multiply_digits(const Operand& left, const Operand& right, const DigitSystem& system, const Target& target,
                     int threads, const Poll& poll);

}  // namespace gemmulate
