// Remainders of 64-bit integers by one divisor: a multiplication for each instead of a division.
#pragma once

#include <cstdint>

namespace gemmulate {

class Modulo {
 public:
  explicit Modulo(uint64_t p) : p_(p), inverse_(~uint64_t{0} / p) {}

  // x mod p. The quotient from inverse = floor((2^64 - 1) / p) is at most two too small: 2^64 / p - inverse <= 1 + 1/p.
  uint64_t operator()(uint64_t x) const {
    const auto q = static_cast<uint64_t>((static_cast<unsigned __int128>(x) * inverse_) >> 64);
    uint64_t r = x - q * p_;
    r -= r >= p_ ? p_ : 0;
    r -= r >= p_ ? p_ : 0;
    return r;
  }

  // v mod p in [0, p).
  uint64_t of_signed(int64_t v) const {
    const uint64_t r = (*this)(v < 0 ? uint64_t{0} - static_cast<uint64_t>(v) : static_cast<uint64_t>(v));
    return v < 0 && r ? p_ - r : r;
  }

  // r in [0, p) as the representative of least magnitude, at most p / 2.
  int64_t centred(uint64_t r) const { return static_cast<int64_t>(r > p_ / 2 ? r - p_ : r); }

 private:
  uint64_t p_, inverse_;
};

}  // namespace gemmulate
