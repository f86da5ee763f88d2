#include "pairs.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "survey.hpp"

namespace gemmulate {
namespace {

constexpr int64_t kLanes = 64;          // vectors of one task, and entries of one call of a kernel
constexpr int64_t kRun = int64_t{1} << 16;  // depth between two flushes: sums of q^2 <= 2^30 stay below 2^53

// 2^shift as two factors, clamped like the scaling of operands: beyond, every product is zero or every entry is.
void split(int64_t shift, double& f1, double& f2) {
  const int s = static_cast<int>(std::clamp<int64_t>(shift, -1300, 1400)), h = s / 2;
  f1 = std::bit_cast<double>(static_cast<uint64_t>(h + 1023) << 52);
  f2 = std::bit_cast<double>(static_cast<uint64_t>(s - h + 1023) << 52);
}

// Copies n entries of a matrix into lanes, zeros behind them.
void fetch(const View& x, int64_t v, int64_t p, int64_t n, int64_t stride, double* out) {
  const double* base = static_cast<const double*>(x.data) + v * x.stride_v + p * x.stride_k;
  if (stride == 1) {
    std::memcpy(out, base, static_cast<size_t>(n) * sizeof(double));
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = base[i * stride];
  }
  std::fill(out + n, out + kLanes, 0.0);
}

struct Lanes {
  alignas(64) double high[kLanes], low[kLanes], f1[kLanes], f2[kLanes], sum[kLanes], square[kLanes];
  alignas(64) int64_t shift[kLanes], top[kLanes], lsb[kLanes], special[kLanes];
};

}  // namespace

PairSurvey survey_pairs(const Isa& isa, const View& high, const View& low, const int32_t* inner, int threads,
                        const Poll& poll) {
  PairSurvey r;
  const auto count = static_cast<size_t>(high.vectors);
  r.top.assign(count, kNoExponent);
  r.lsb.assign(count, -kNoExponent);
  r.special.assign(count, 0);
  r.sum.assign(count, 0);
  r.square.assign(count, 0);
  const double ns = 2.0 * static_cast<double>(high.vectors) * static_cast<double>(high.depth);
  // Lanes lie along the stride that memory likes: entries of one vector, or one step of k of several vectors.
  const bool along = std::abs(high.stride_k) <= std::abs(high.stride_v);
  const auto finish = [&](int64_t v, int64_t top, int64_t lsb, bool special) {
    if (top > -kUnsetExponent / 2) {
      r.top[static_cast<size_t>(v)] = static_cast<int32_t>(top);
      r.lsb[static_cast<size_t>(v)] = static_cast<int32_t>(lsb);
    }
    r.special[static_cast<size_t>(v)] = special;
  };
  const auto flush = [&](Lanes& t, int64_t lane, int64_t v) {
    r.sum[static_cast<size_t>(v)] += static_cast<uint64_t>(t.sum[lane]);
    r.square[static_cast<size_t>(v)] += static_cast<uint64_t>(t.square[lane]);
    t.sum[lane] = t.square[lane] = 0.0;
  };
  const auto one_vector = [&](Lanes& t, int64_t v) {
    std::fill(t.top, t.top + kLanes, -kUnsetExponent);
    std::fill(t.lsb, t.lsb + kLanes, kUnsetExponent);
    std::fill(t.special, t.special + kLanes, 0);
    for (int64_t p = 0; p < high.depth; p += kLanes) {
      if (p % kRun == 0) Loop::checkpoint();
      const int64_t n = std::min(kLanes, high.depth - p);
      fetch(high, v, p, n, high.stride_k, t.high);
      fetch(low, v, p, n, low.stride_k, t.low);
      if (inner)
        for (int64_t i = 0; i < n; ++i) t.shift[i] = inner[p + i];
      isa.pair.exponents(t.high, t.low, t.shift, kLanes, t.top, t.lsb, t.special);
    }
    const int64_t top = *std::max_element(t.top, t.top + kLanes);
    finish(v, top, *std::min_element(t.lsb, t.lsb + kLanes), *std::max_element(t.special, t.special + kLanes) > 0);
    if (r.top[static_cast<size_t>(v)] == kNoExponent) return;
    for (int64_t i = 0; i < kLanes; ++i) split(15 - top, t.f1[i], t.f2[i]);
    for (int64_t p = 0; p < high.depth; p += kLanes) {
      if (p % kRun == 0) Loop::checkpoint();
      const int64_t n = std::min(kLanes, high.depth - p);
      fetch(high, v, p, n, high.stride_k, t.high);
      if (inner)
        for (int64_t i = 0; i < n; ++i) split(15 - top + inner[p + i], t.f1[i], t.f2[i]);
      isa.pair.norms(t.high, t.f1, t.f2, kLanes, t.sum, t.square);
      if (p + kLanes >= high.depth || (p / kLanes + 1) % (kRun / kLanes) == 0)
        for (int64_t i = 0; i < kLanes; ++i) flush(t, i, v);
    }
  };
  const auto many_vectors = [&](Lanes& t, int64_t v0, int64_t n) {
    std::fill(t.top, t.top + kLanes, -kUnsetExponent);
    std::fill(t.lsb, t.lsb + kLanes, kUnsetExponent);
    std::fill(t.special, t.special + kLanes, 0);
    for (int64_t p = 0; p < high.depth; ++p) {
      if (p % (kRun / kLanes) == 0) Loop::checkpoint();
      fetch(high, v0, p, n, high.stride_v, t.high);
      fetch(low, v0, p, n, low.stride_v, t.low);
      if (inner) std::fill(t.shift, t.shift + n, inner[p]);
      isa.pair.exponents(t.high, t.low, t.shift, kLanes, t.top, t.lsb, t.special);
    }
    for (int64_t i = 0; i < n; ++i) finish(v0 + i, t.top[i], t.lsb[i], t.special[i] > 0);
    const auto scale = [&](int64_t e) {
      for (int64_t i = 0; i < n; ++i) split(15 - int64_t{r.top[static_cast<size_t>(v0 + i)]} + e, t.f1[i], t.f2[i]);
    };
    scale(0);
    for (int64_t p = 0; p < high.depth; ++p) {
      if (p % (kRun / kLanes) == 0) Loop::checkpoint();
      fetch(high, v0, p, n, high.stride_v, t.high);
      if (inner) scale(inner[p]);
      isa.pair.norms(t.high, t.f1, t.f2, kLanes, t.sum, t.square);
      if (p + 1 == high.depth || (p + 1) % kRun == 0)
        for (int64_t i = 0; i < n; ++i) flush(t, i, v0 + i);
    }
  };
  parallel_for((high.vectors + kLanes - 1) / kLanes, useful_threads(ns, threads), poll, [&](int64_t block) {
    thread_local Lanes lanes;
    std::memset(&lanes, 0, sizeof lanes);
    const int64_t v0 = block * kLanes, n = std::min(kLanes, high.vectors - v0);
    if (!along) return many_vectors(lanes, v0, n);
    for (int64_t v = v0; v < v0 + n; ++v) one_vector(lanes, v);
  });
  return r;
}

}  // namespace gemmulate
