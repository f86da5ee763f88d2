// float16 and bfloat16 as results: 16 bits in memory, and the one rounding from float64 that gives them.
#pragma once

#include <bit>
#include <cstdint>

#include "bigint.hpp"

namespace gemmulate {

// An IEEE binary format of 16 bits with `kDigits` significand bits, the hidden one included.
template <int kDigits>
struct Narrow {
  static constexpr int kExponentBits = 16 - kDigits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;  // the largest exponent, too
  static constexpr int kLeast = 2 - kBias - kDigits;            // exponent of the least subnormal number

  uint16_t bits = 0;

  Narrow() = default;

  // Round to nearest even, overflow and subnormal results included. With x rounded to odd this is the only rounding
  // that counts: 53 >= kDigits + 2 (Boldo and Melquiond 2008, theorem 1), and x's own exponent range is wider.
  explicit Narrow(double x) {
    const auto raw = std::bit_cast<uint64_t>(x);
    const uint64_t magnitude = raw & ~(uint64_t{1} << 63);
    const auto sign = static_cast<uint16_t>(raw >> 63 << 15);
    constexpr uint64_t kInfinity = uint64_t{0x7ff} << 52;
    constexpr auto kTop = static_cast<uint16_t>(((1 << kExponentBits) - 1) << (kDigits - 1));
    if (magnitude > kInfinity) {
      bits = static_cast<uint16_t>(sign | kTop | 1 << (kDigits - 2));  // a quiet NaN
      return;
    }
    const int exponent = static_cast<int>(magnitude >> 52) - 1023;
    const int quantum = exponent - kDigits + 1 > kLeast ? exponent - kDigits + 1 : kLeast;
    if (exponent > kBias) {
      bits = static_cast<uint16_t>(sign | kTop);
      return;
    }
    // Adding and subtracting 1.5 2^(52 + quantum) leaves a multiple of 2^quantum, ties to even.
    const double shifter = std::bit_cast<double>(static_cast<uint64_t>(52 + quantum + 1023) << 52 | uint64_t{1} << 51);
    const double rounded = (std::bit_cast<double>(magnitude) + shifter) - shifter;
    const auto result = std::bit_cast<uint64_t>(rounded);
    if (result < static_cast<uint64_t>(1 - kBias + 1023) << 52)  // subnormal: a count of least numbers
      bits = static_cast<uint16_t>(sign | static_cast<uint16_t>(rounded * exp2_exact(-kLeast)));
    else  // a carry out of the largest exponent is the bit pattern of infinity
      bits = static_cast<uint16_t>(
          sign | static_cast<uint16_t>((result >> (53 - kDigits)) - (static_cast<uint64_t>(1023 - kBias) << (kDigits - 1))));
  }

  Narrow operator-() const {
    Narrow r;
    r.bits = bits ^ 0x8000;
    return r;
  }
  bool is_zero() const { return (bits & 0x7fff) == 0; }
  friend bool operator==(const Narrow& a, const Narrow& b) { return a.bits == b.bits || (a.is_zero() && b.is_zero()); }
  friend bool signbit(const Narrow& x) { return x.bits >> 15; }
};

using Float16 = Narrow<11>;
using Bfloat16 = Narrow<8>;

template <int kDigits>
struct Ieee<Narrow<kDigits>> {
  static constexpr int digits = kDigits, least = Narrow<kDigits>::kLeast;
};

}  // namespace gemmulate
