#include "survey.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "dispatch.hpp"

namespace gemmulate {
namespace {

constexpr int64_t kBlock = 64;  // vectors of one task

// body(v, p, value) over a block of vectors, in the order that memory likes.
template <class T, class Body>
void visit(const View& x, int64_t v0, int64_t v1, const Body& body) {
  const T* base = static_cast<const T*>(x.data);
  constexpr int64_t kStep = int64_t{1} << 16;  // entries between two checkpoints, or so
  if (std::abs(x.stride_k) <= std::abs(x.stride_v)) {
    for (int64_t v = v0; v < v1; ++v)
      for (int64_t p0 = 0; p0 < x.depth; p0 += kStep) {
        Loop::checkpoint();
        for (int64_t p = p0; p < std::min(x.depth, p0 + kStep); ++p) body(v, p, base[v * x.stride_v + p * x.stride_k]);
      }
  } else {
    for (int64_t p = 0; p < x.depth; ++p) {
      if (p % (kStep / kBlock) == 0) Loop::checkpoint();
      for (int64_t v = v0; v < v1; ++v) body(v, p, base[v * x.stride_v + p * x.stride_k]);
    }
  }
}

template <class Body>
void for_vectors(const View& x, int threads, const Poll& poll, const Body& body) {
  const double ns = 2.0 * static_cast<double>(x.vectors) * static_cast<double>(x.depth);
  parallel_for((x.vectors + kBlock - 1) / kBlock, useful_threads(ns, threads), poll, [&](int64_t block) {
    body(block * kBlock, std::min(x.vectors, (block + 1) * kBlock));
  });
}

struct Bits {
  int top, lsb;
};

// Exponents of a finite nonzero double: |x| < 2^top, lowest set bit 2^lsb.
inline Bits exponents(uint64_t bits) {
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (field) {
    mantissa |= uint64_t{1} << 52;
    return {field - 1022, field - 1075 + std::countr_zero(mantissa)};
  }
  return {-1074 + 64 - std::countl_zero(mantissa), -1074 + std::countr_zero(mantissa)};
}

inline double two_factors(double x, int shift) {
  const int s = std::clamp(shift, -1300, 1400), h = s / 2;
  return x * std::bit_cast<double>(static_cast<uint64_t>(h + 1023) << 52) *
         std::bit_cast<double>(static_cast<uint64_t>(s - h + 1023) << 52);
}

}  // namespace

Scan scan_floats(const View& x, const int32_t* inner, int threads, const Poll& poll) {
  Scan s;
  const auto n = static_cast<size_t>(x.vectors);
  s.top.assign(n, kNoExponent);
  s.lsb.assign(n, -kNoExponent);
  s.special.assign(n, 0);
  for_vectors(x, threads, poll, [&](int64_t v0, int64_t v1) {
    dispatch_float(x.type, [&]<class T>(T) {
      visit<T>(x, v0, v1, [&](int64_t v, int64_t p, T value) {
        const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(value)) & ~(uint64_t{1} << 63);
        if (bits == 0) return;
        if (bits >> 52 == 0x7ff) {
          s.special[v] = 1;
          return;
        }
        const Bits b = exponents(bits);
        const int e = inner ? inner[p] : 0;
        s.top[v] = std::max(s.top[v], b.top + e);
        s.lsb[v] = std::min(s.lsb[v], b.lsb + e);
      });
    });
  });
  return s;
}

Norms norms_floats(const View& x, const int32_t* top, const int32_t* inner, int threads, const Poll& poll) {
  Norms r;
  r.sum.assign(static_cast<size_t>(x.vectors), 0);
  r.square.assign(static_cast<size_t>(x.vectors), 0);
  r.peak.assign(static_cast<size_t>(x.vectors), 0);
  for_vectors(x, threads, poll, [&](int64_t v0, int64_t v1) {
    dispatch_float(x.type, [&]<class T>(T) {
      visit<T>(x, v0, v1, [&](int64_t v, int64_t p, T value) {
        const double a = std::fabs(static_cast<double>(value));
        if (!(a <= std::numeric_limits<double>::max()) || a == 0.0) return;
        const double scaled = two_factors(a, 15 - top[v] + (inner ? inner[p] : 0));
        auto q = static_cast<uint64_t>(static_cast<int64_t>(scaled));
        q += static_cast<double>(q) < scaled || q == 0;  // a product that underflowed to zero still counts
        r.sum[v] += q;
        r.square[v] += q * q;
        r.peak[v] = std::max(r.peak[v], q);
      });
    });
  });
  return r;
}

Range range_integers(const View& x, int threads, const Poll& poll) {
  Range r;
  std::mutex lock;
  if (x.vectors == 0 || x.depth == 0) return r;
  for_vectors(x, threads, poll, [&](int64_t v0, int64_t v1) {
    dispatch_integer(x.type, [&]<class T>(T) {
      T lo = std::numeric_limits<T>::max(), hi = std::numeric_limits<T>::min();
      visit<T>(x, v0, v1, [&](int64_t, int64_t, T value) {
        lo = std::min(lo, value);
        hi = std::max(hi, value);
      });
      const std::lock_guard guard(lock);
      if (!r.any) r.min = lo < T{} ? static_cast<int64_t>(lo) : std::numeric_limits<int64_t>::max();
      r.any = true;
      if (lo < T{}) {
        r.min = r.negative ? std::min(r.min, static_cast<int64_t>(lo)) : static_cast<int64_t>(lo);
        r.negative = true;
      }
      if (hi > T{}) r.max = std::max(r.max, static_cast<uint64_t>(hi));
      if (!r.negative) r.min = 0;
    });
  });
  return r;
}

std::vector<int64_t> depths_floats(const View& x, const int32_t* top, const int32_t* inner, int bins, int threads,
                                   const Poll& poll) {
  std::vector<int64_t> hist(static_cast<size_t>(bins), 0);
  std::mutex lock;
  for_vectors(x, threads, poll, [&](int64_t v0, int64_t v1) {
    std::vector<int64_t> local(static_cast<size_t>(bins), 0);
    dispatch_float(x.type, [&]<class T>(T) {
      visit<T>(x, v0, v1, [&](int64_t v, int64_t p, T value) {
        const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(value)) & ~(uint64_t{1} << 63);
        if (bits == 0 || bits >> 52 == 0x7ff) return;
        const int depth = top[v] - exponents(bits).lsb - (inner ? inner[p] : 0);
        ++local[static_cast<size_t>(std::clamp(depth, 0, bins - 1))];
      });
    });
    const std::lock_guard guard(lock);
    for (int d = 0; d < bins; ++d) hist[static_cast<size_t>(d)] += local[static_cast<size_t>(d)];
  });
  return hist;
}

}  // namespace gemmulate
