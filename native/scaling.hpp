// Exact scaling of floats by powers of two.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace gemmulate {

inline double power_of_two(int x) { return std::bit_cast<double>(static_cast<uint64_t>(x + 1023) << 52); }

// 2^shift as two factors. A shift below -1300 gives zero (the largest double is below 2^1024), a shift above
// 1400 meets only zeros (the least subnormal is 2^-1074 and results stay below 2^300): both are clamped.
inline void split_scale(int shift, double& f1, double& f2) {
  const int s = std::clamp(shift, -1300, 1400), h = s / 2;
  f1 = power_of_two(h);
  f2 = power_of_two(s - h);
}

inline double finite_or_zero(double x) {
  return std::fabs(x) <= std::numeric_limits<double>::max() ? x : 0.0;
}

}  // namespace gemmulate
