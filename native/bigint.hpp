// Fixed-width integers of 64-bit words and their one rounding to IEEE formats.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace gemmulate {

using Int128 = __int128;
using UInt128 = unsigned __int128;

// 2^x as a double, x in [-1074, 1023].
inline double exp2_exact(int x) {
  if (x >= -1022) return std::bit_cast<double>(static_cast<uint64_t>(x + 1023) << 52);
  return std::bit_cast<double>(uint64_t{1} << (x + 1074));
}

template <class Float>
struct Ieee;
template <>
struct Ieee<double> {
  static constexpr int digits = 53, least = -1074;
};
template <>
struct Ieee<float> {
  static constexpr int digits = 24, least = -149;
};

// q 2^x, q <= 2^digits, every result exact or overflowing.
template <class Float>
inline Float scale_exact(uint64_t q, int64_t x) {
  if (q == 0) return Float{};
  if (x > 1023) return static_cast<Float>(HUGE_VAL);
  return static_cast<Float>(static_cast<double>(q) * exp2_exact(static_cast<int>(x)));
}

inline int bit_length(uint64_t v) { return 64 - std::countl_zero(v); }
inline int bit_length(UInt128 v) {
  const auto hi = static_cast<uint64_t>(v >> 64);
  return hi ? 64 + bit_length(hi) : bit_length(static_cast<uint64_t>(v));
}

// Round-to-nearest-even of v 2^e, subnormal results and overflow as IEEE 754 has them.
template <class Float>
inline Float round_int128(Int128 v, int64_t e) {
  const UInt128 mag = v < 0 ? -static_cast<UInt128>(v) : static_cast<UInt128>(v);
  const int n = bit_length(mag);
  if (n == 0) return Float{};
  const int64_t shift = std::max<int64_t>(n - Ieee<Float>::digits, Ieee<Float>::least - e);
  Float r;
  if (shift <= 0) {
    r = scale_exact<Float>(static_cast<uint64_t>(mag), e);
  } else if (shift > n) {
    r = Float{};
  } else {
    auto q = static_cast<uint64_t>(shift == 128 ? 0 : mag >> shift);
    const UInt128 half = UInt128{1} << (shift - 1), rest = mag & ((half << 1) - 1);
    q += rest > half || (rest == half && (q & 1));
    r = scale_exact<Float>(q, e + shift);
  }
  return v < 0 ? -r : r;
}

// The same for a two's complement integer of n words, little-endian; w is overwritten by its magnitude.
template <class Float>
inline Float round_words(uint64_t* w, int n, int64_t e) {
  const bool negative = w[n - 1] >> 63;
  if (negative) {
    uint64_t carry = 1;
    for (int i = 0; i < n; ++i) {
      w[i] = ~w[i] + carry;
      carry = carry && w[i] == 0;
    }
  }
  int top = n - 1;
  while (top >= 0 && w[top] == 0) --top;
  if (top < 0) return Float{};
  const int64_t length = 64 * static_cast<int64_t>(top) + bit_length(w[top]);
  const int64_t shift = std::max<int64_t>(length - Ieee<Float>::digits, Ieee<Float>::least - e);
  Float r;
  if (shift <= 0) {
    r = scale_exact<Float>(w[0], e);
  } else if (shift > length) {
    r = Float{};
  } else {
    const auto bit = [&](int64_t i) { return i < 64 * static_cast<int64_t>(n) && (w[i / 64] >> (i % 64) & 1); };
    const int64_t word = shift / 64, rest = shift % 64;
    uint64_t q = 0;
    if (word < n) q = w[word] >> rest;
    if (rest && word + 1 < n) q |= w[word + 1] << (64 - rest);
    bool sticky = false;
    for (int64_t i = 0; i < (shift - 1) / 64 && !sticky; ++i) sticky = w[i] != 0;
    if ((shift - 1) % 64) sticky |= (w[(shift - 1) / 64] & ((uint64_t{1} << ((shift - 1) % 64)) - 1)) != 0;
    q += bit(shift - 1) && (sticky || (q & 1));
    r = scale_exact<Float>(q, e + shift);
  }
  return negative ? -r : r;
}

// The limbs that Isa::crt leaves (radix 2^40, signed, not normalised) as two's complement words.
inline void limbs_to_words(const double* acc, int64_t stride, int limbs, uint64_t* w, int n) {
  for (int i = 0; i < n; ++i) w[i] = 0;
  int64_t carry = 0;
  for (int l = 0; l < limbs; ++l) {
    const int64_t t = static_cast<int64_t>(acc[l * stride]) + carry;
    const uint64_t digit = static_cast<uint64_t>(t) & ((uint64_t{1} << 40) - 1);
    carry = t >> 40;
    const int bit = 40 * l;
    if (bit / 64 < n) w[bit / 64] |= digit << (bit % 64);
    if (bit % 64 > 24 && bit / 64 + 1 < n) w[bit / 64 + 1] |= digit >> (64 - bit % 64);
  }
  const int bit = 40 * limbs;
  for (int i = bit / 64; i < n; ++i) {
    const int from = i == bit / 64 ? bit % 64 : 0;
    w[i] |= static_cast<uint64_t>(carry) << from;
    if (from) carry = carry < 0 ? -1 : 0;
  }
}

// Adds (negative: subtracts) m 2^s to the two's complement words.
inline void add_shifted(uint64_t* w, int n, uint64_t m, int s, bool negative) {
  if (s < 0) {  // round away from zero: the bound may only grow
    const int d = -s;
    m = d >= 64 ? (m != 0) : (m >> d) + ((m & ((uint64_t{1} << d) - 1)) != 0);
    s = 0;
  }
  uint64_t part[2] = {m << (s % 64), s % 64 ? m >> (64 - s % 64) : 0};
  uint64_t carry = 0;
  for (int i = s / 64; i < n; ++i) {
    const int k = i - s / 64;
    const uint64_t add = k < 2 ? part[k] : 0;
    const UInt128 t = negative ? static_cast<UInt128>(w[i]) - add - carry : static_cast<UInt128>(w[i]) + add + carry;
    w[i] = static_cast<uint64_t>(t);
    carry = static_cast<uint64_t>(t >> 64) & 1;
  }
}

// A value as high + low: high is the value rounded to nearest, low the rest rounded to nearest.
struct Pair {
  double high, low;
};

// The two's complement integer of n words times 2^e, rounded once to a pair: within 2^-106 of the value, or 2^-1075
// where low is subnormal. An infinite high goes with a low of zero.
inline Pair round_pair(uint64_t* w, int n, int64_t e) {
  constexpr int kMost = 72;
  uint64_t rest[kMost];
  std::memcpy(rest, w, sizeof(uint64_t) * static_cast<size_t>(n));
  const double high = round_words<double>(w, n, e);
  if (high == 0.0 || std::fabs(high) == HUGE_VAL) return {high, 0.0};
  const auto bits = std::bit_cast<uint64_t>(high);
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t m = (bits & ((uint64_t{1} << 52) - 1)) | static_cast<uint64_t>(field != 0) << 52;
  int64_t s = (field ? field : 1) - 1075 - e;  // high = m 2^(s + e)
  if (s < 0) {  // only zeros of m lie below the integer's last place
    m >>= -s;
    s = 0;
  }
  add_shifted(rest, n, m, static_cast<int>(s), high > 0.0);
  const double low = round_words<double>(rest, n, e) + 0.0;
  const double sum = high + low;
  if (sum == high) return {high, low};
  // The rest rounded up to half a place of an odd high: pairs keep high = fl(high + low).
  if (std::fabs(sum) == HUGE_VAL) return {high, std::nextafter(low, 0.0)};
  return {sum, low - (sum - high)};
}

}  // namespace gemmulate
