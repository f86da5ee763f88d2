#include "survey.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <type_traits>

#include "centre.hpp"
#include "dispatch.hpp"
#include "scaling.hpp"

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

// body(chunk of doubles, lanes, first vector, first p), lanes padded with zeros to a multiple of 8: runs over the entries of vectors [v0, v1) in the order that
// memory likes. Along k (`across` false) every chunk belongs to one vector, else its lanes are neighbouring vectors.
template <class T, class Body>
void chunks(const View& x, int64_t v0, int64_t v1, bool across, const Body& body) {
  const T* base = static_cast<const T*>(x.data);
  const int64_t outer0 = across ? 0 : v0, outer1 = across ? x.depth : v1;
  const int64_t inner0 = across ? v0 : 0, inner1 = across ? v1 : x.depth;
  const int64_t outer_stride = across ? x.stride_k : x.stride_v, inner_stride = across ? x.stride_v : x.stride_k;
  double copy[kBlock];
  for (int64_t o = outer0; o < outer1; ++o) {
    if (!across || o % 1024 == 0) Loop::checkpoint();
    for (int64_t i = inner0; i < inner1; i += kBlock) {
      if (!across && (i - inner0) % (int64_t{1} << 16) == 0) Loop::checkpoint();
      const int64_t lanes = std::min(kBlock, inner1 - i);
      const T* from = base + o * outer_stride + i * inner_stride;
      const int64_t padded = (lanes + 7) / 8 * 8;
      const double* values = copy;
      if constexpr (std::is_same_v<T, double>)
        if (inner_stride == 1 && lanes == padded) values = from;
      if (values == copy) {
        for (int64_t l = 0; l < lanes; ++l) copy[l] = static_cast<double>(from[l * inner_stride]);
        for (int64_t l = lanes; l < padded; ++l) copy[l] = 0.0;
      }
      body(values, padded, across ? i : o, across ? o : i);
    }
  }
}

// Scaling along k: rarely asked for, so entry by entry.
Scan scan_scaled(const View& x, const int32_t* inner, int threads, const Poll& poll) {
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
        s.top[v] = std::max(s.top[v], b.top + inner[p]);
        s.lsb[v] = std::min(s.lsb[v], b.lsb + inner[p]);
      });
    });
  });
  return s;
}

}  // namespace

Scan scan_floats(const Isa& isa, const View& x, const int32_t* inner, int threads, const Poll& poll) {
  if (inner) return scan_scaled(x, inner, threads, poll);
  Scan s;
  const auto n = static_cast<size_t>(x.vectors);
  s.top.assign(n, kNoExponent);
  s.lsb.assign(n, -kNoExponent);
  s.special.assign(n, 0);
  const bool across = runs_across(x);
  for_vectors(x, threads, poll, [&](int64_t v0, int64_t v1) {
    int64_t largest[kBlock] = {}, lowest[kBlock], special[kBlock] = {};
    std::fill(lowest, lowest + kBlock, kNothingSeen);
    dispatch_float(x.type, [&]<class T>(T) {
      if (across) {
        chunks<T>(x, v0, v1, true, [&](const double* values, int64_t lanes, int64_t, int64_t) {
          isa.scan_across(values, lanes, largest, lowest, special);
        });
      } else {
        chunks<T>(x, v0, v1, false, [&](const double* values, int64_t count, int64_t v, int64_t) {
          isa.scan_along(values, count, largest + (v - v0), lowest + (v - v0), special + (v - v0));
        });
      }
    });
    for (int64_t v = v0; v < v1; ++v) {
      const auto u = static_cast<size_t>(v);
      if (largest[v - v0]) {
        s.top[u] = exponents(static_cast<uint64_t>(largest[v - v0])).top;
        s.lsb[u] = static_cast<int32_t>(lowest[v - v0]);
      }
      s.special[u] = special[v - v0] != 0;
    }
  });
  return s;
}

Norms norms_floats(const Isa& isa, const View& x, const int32_t* top, const int32_t* inner, int threads,
                   const Poll& poll) {
  Norms r;
  r.sum.assign(static_cast<size_t>(x.vectors), 0);
  r.square.assign(static_cast<size_t>(x.vectors), 0);
  r.peak.assign(static_cast<size_t>(x.vectors), 0);
  const bool across = runs_across(x);
  constexpr int64_t kExactSteps = int64_t{1} << 22;  // q^2 <= 2^30: float64 holds that many of them exactly
  for_vectors(x, threads, poll, [&](int64_t v0, int64_t v1) {
    double f1[kBlock] = {}, f2[kBlock] = {}, sum[kBlock] = {}, square[kBlock] = {}, peak[kBlock] = {};
    int64_t steps = 0;
    const auto add = [&](int64_t v, int64_t lane) {
      const auto u = static_cast<size_t>(v);
      r.sum[u] += static_cast<uint64_t>(sum[lane]);
      r.square[u] += static_cast<uint64_t>(square[lane]);
      r.peak[u] = std::max(r.peak[u], static_cast<uint64_t>(peak[lane]));
      sum[lane] = square[lane] = peak[lane] = 0.0;
    };
    const auto flush = [&](int64_t v) {  // across: lane l is vector v0 + l; along k: every lane is vector v
      for (int64_t l = 0; l < (across ? v1 - v0 : kBlock); ++l) add(across ? v0 + l : v, l);
      steps = 0;
    };
    dispatch_float(x.type, [&]<class T>(T) {
      for (int64_t v = v0; v < v1; v = across ? v1 : v + 1) {
        if (!inner)
          for (int64_t l = 0; l < kBlock; ++l) split_scale(15 - top[across ? std::min(v0 + l, v1 - 1) : v], f1[l], f2[l]);
        chunks<T>(x, v, across ? v1 : v + 1, across, [&](const double* values, int64_t lanes, int64_t w, int64_t p) {
          if (inner)
            for (int64_t l = 0; l < std::min(lanes, across ? v1 - w : x.depth - p); ++l)
              split_scale(15 - top[across ? w + l : w] + inner[across ? p : p + l], f1[l], f2[l]);
          isa.norms_f64(values, f1, f2, lanes, sum, square, peak);
          if (++steps == kExactSteps) flush(w);
        });
        flush(v);
      }
    });
  });
  return r;
}

Range range_integers(const Isa& isa, const View& x, int threads, const Poll& poll) {
  Range r;
  std::mutex lock;
  if (x.vectors == 0 || x.depth == 0) return r;
  const bool across = runs_across(x);
  const int64_t outer_stride = across ? x.stride_k : x.stride_v, inner_stride = across ? x.stride_v : x.stride_k;
  // Tasks are of a run of the outer index each; runs of memory where entries are contiguous.
  const int64_t outer = across ? x.depth : x.vectors, inner = across ? x.vectors : x.depth;
  const View rows{x.data, x.type, outer, inner, outer_stride, inner_stride};
  for_vectors(rows, threads, poll, [&](int64_t o0, int64_t o1) {
    dispatch_integer(x.type, [&]<class T>(T) {
      constexpr int64_t kChunk = int64_t{1} << 14;
      T lo = std::numeric_limits<T>::max(), hi = std::numeric_limits<T>::min();
      for (int64_t o = o0; o < o1; ++o)
        for (int64_t i = 0; i < inner; i += kChunk) {
          if (i % (4 * kChunk) == 0) Loop::checkpoint();
          const int64_t n = std::min(kChunk, inner - i);
          const T* from = static_cast<const T*>(x.data) + o * outer_stride + i * inner_stride;
          if (inner_stride == 1) {
            int64_t least, most;
            isa.modular.range(sizeof(T), std::is_unsigned_v<T>, from, n, &least, &most);
            lo = std::min(lo, static_cast<T>(least));
            hi = std::max(hi, static_cast<T>(most));
          } else {
            for (int64_t l = 0; l < n; ++l) {
              lo = std::min(lo, from[l * inner_stride]);
              hi = std::max(hi, from[l * inner_stride]);
            }
          }
        }
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

void centre_integers(const Isa& isa, const View& x, uint64_t p, void* out, Type type, int threads, const Poll& poll) {
  const Centre centre(isa, p);
  dispatch_integer(type, [&]<class U>(U) {
    U* const to = static_cast<U*>(out);
    for_vectors(x, threads, poll, [&](int64_t v0, int64_t v1) {
      constexpr int64_t kChunk = 512;
      int64_t value[kChunk], rest[kChunk];
      dispatch_integer(x.type, [&]<class T>(T) {
        for (int64_t v = v0; v < v1; ++v)
          for (int64_t q0 = 0; q0 < x.depth; q0 += kChunk) {
            if (q0 % (kChunk * 256) == 0) Loop::checkpoint();
            const int64_t n = std::min(kChunk, x.depth - q0);
            const T* from = static_cast<const T*>(x.data) + v * x.stride_v + q0 * x.stride_k;
            for (int64_t i = 0; i < n; ++i) value[i] = static_cast<int64_t>(from[i * x.stride_k]);
            centre(value, n, std::is_same_v<T, uint64_t>, rest);
            for (int64_t i = 0; i < n; ++i) to[v * x.depth + q0 + i] = static_cast<U>(rest[i]);
          }
      });
    });
  });
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
