// What a scheme asks of the data before it chooses bits and moduli.
#pragma once

#include <cstdint>
#include <vector>

#include "operand.hpp"

namespace gemmulate {

inline constexpr int32_t kNoExponent = -100000;  // top of a zero vector

struct Scan {
  std::vector<int32_t> top;      // |x_vp| 2^inner[p] < 2^top[v], least such; kNoExponent for a zero vector
  std::vector<int32_t> lsb;      // lowest set bit of any entry, 2^lsb[v]; -kNoExponent for a zero vector
  std::vector<uint8_t> special;  // 1 where the vector holds NaN or infinity
};
Scan scan_floats(const Isa& isa, const View& x, const int32_t* inner, int threads, const Poll& poll);

// Sums over each vector of ceil(|x_vp| 2^(15 - top[v] + inner[p])) and of its square, and the largest: integers, so that the bounds
// made from them do not depend on the order of summation.
struct Norms {
  std::vector<uint64_t> sum, square, peak;
};
Norms norms_floats(const Isa& isa, const View& x, const int32_t* top, const int32_t* inner, int threads,
                   const Poll& poll);

struct Range {
  bool any = false;
  bool negative = false;  // min < 0
  int64_t min = 0;        // when negative
  uint64_t max = 0;       // largest value if >= 0
};
Range range_integers(const Isa& isa, const View& x, int threads, const Poll& poll);

// out[v][p] = x_vp modulo p, of least magnitude (at most p / 2, which `type` must hold), row by row.
void centre_integers(const Isa& isa, const View& x, uint64_t p, void* out, Type type, int threads, const Poll& poll);

// Depths hist[d]: how many entries need d = top[v] - lsb(entry) bits to be exact; clipped to the last bin.
std::vector<int64_t> depths_floats(const View& x, const int32_t* top, const int32_t* inner, int bins, int threads,
                                   const Poll& poll);

}  // namespace gemmulate
