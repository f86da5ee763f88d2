#include "anchored.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "dispatch.hpp"
#include "exactdot.hpp"
#include "scaling.hpp"

namespace gemmulate {
namespace {

// Results in this range of exponents are normal numbers of float64 whatever the sum (kLeastAnchoredSum).
constexpr int kSafeExponent = 800;

constexpr int kMaxWidth = 32;  // of any kernel's panels

// Rounds one row of a tile.
template <class Float>
class RowRounding {
 public:
  RowRounding(const AnchoredOperand& left, const AnchoredOperand& right, const Target& target)
      : left_(left), right_(right), target_(target), depth_(left.panels.depth) {}

  int64_t zeros = 0;
  std::vector<Index> uncertain;

  void row(const double* head, const double* tail, int64_t i, int64_t j0, int64_t columns) {
    if (sizeof(Float) == 8 && right_.ordinary && std::abs(left_.top[static_cast<size_t>(i)]) <= kSafeExponent / 2)
      many(head, tail, i, j0, columns);
    else
      one_by_one(head, tail, i, j0, columns);
  }

 private:
  // By the instruction set's kernel.
  void many(const double* head, const double* tail, int64_t i, int64_t j0, int64_t columns) {
    const auto v = static_cast<size_t>(i);
    const double depth = static_cast<double>(depth_), anchor = 3.0 * exp2_exact(left_.norm[v]);  // of 1.5 2^p
    const AnchoredRow row{anchor, depth * depth * (1 + 0x1p-40) * 0x1p-105 * (anchor / 1.5),
                          static_cast<double>(depth_bits() + left_.norm[v] + 1 - 106 - left_.lowest[v]),
                          exp2_exact(left_.top[v])};
    const AnchoredColumns column{right_.scale.data() + j0, right_.slack.data() + j0, right_.factor.data() + j0};
    const int64_t padded = (columns + 7) / 8 * 8;  // whole panels lie behind the sums and the columns' arrays
    value_.resize(static_cast<size_t>(padded));
    hard_.resize(static_cast<size_t>(padded));
    left_.panels.isa->round_anchored(head, tail, padded, row, column, value_.data(), hard_.data());
    Float* const out = static_cast<Float*>(target_.data) + i * target_.stride_i + j0 * target_.stride_j;
    int64_t open = 0, none = 0;
    for (int64_t j = 0; j < columns; ++j) {
      const double value = value_[static_cast<size_t>(j)];
      out[j * target_.stride_j] = static_cast<Float>(value);
      open += hard_[static_cast<size_t>(j)];
      none += value == 0.0;
    }
    for (int64_t j = 0; open && j < columns; ++j)
      if (hard_[static_cast<size_t>(j)]) {
        uncertain.push_back({i, j0 + j});
        none -= value_[static_cast<size_t>(j)] == 0.0;
      }
    zeros += none;
  }

  void one_by_one(const double* head, const double* tail, int64_t i, int64_t j0, int64_t columns) {
    const auto v = static_cast<size_t>(i);
    Float* const out = static_cast<Float*>(target_.data) + i * target_.stride_i + j0 * target_.stride_j;
    // 2^-54 k^2 g with g = 2^(p - 52), p = norm_i + norm_j + 1; k^2 and the products are exact or rounded by 2^-53.
    const double depth = static_cast<double>(depth_);
    const double unit = depth * depth * (1 + 0x1p-40) * 0x1p-105;
    for (int64_t j = 0; j < columns; ++j) {
      const auto w = static_cast<size_t>(j0 + j);
      const int p = left_.norm[v] + right_.norm[w] + 1, e = left_.top[v] + right_.top[w];
      const double anchor = exp2_exact(p);
      const double high = head[j] - 1.5 * anchor;
      const double value = high + tail[j], back = value - high;
      const double error = (high - (value - back)) + (tail[j] - back);  // value + error = high + tail (Knuth 1969)
      // The rests are multiples of the products' lowest bit: their sum, below k g/2, is exact while it fits 53 bits.
      const bool exact = left_.lowest[v] + right_.lowest[w] >= depth_bits() + p - 106;
      const double bound = exact ? 0.0 : unit * anchor;
      Float result;
      const bool in_range = (e >= -kSafeExponent && e <= kSafeExponent && std::fabs(value) >= kLeastAnchoredSum) || value == 0.0;
      if (in_range && certain(value, error, bound, value == 0.0 ? 0 : e, result)) {
        zeros += result == Float{};
        out[j * target_.stride_j] = result;
      } else {
        uncertain.push_back({i, j0 + j});
      }
    }
  }

  const AnchoredOperand& left_;
  const AnchoredOperand& right_;
  const Target& target_;
  int64_t depth_;
  std::vector<double> value_;
  std::vector<uint8_t> hard_;

  int depth_bits() const { return static_cast<int>(std::bit_width(static_cast<uint64_t>(depth_ - 1))); }

  // Whether every number within `bound` of value + error, times 2^e, rounds to one result.
  static bool certain(double value, double error, double bound, int e, Float& result) {
    if constexpr (sizeof(Float) == 8) {
      result = value * exp2_exact(e);
      if (bound == 0.0) return true;
      const auto bits = std::bit_cast<uint64_t>(value);
      const double ulp = std::bit_cast<double>(bits & uint64_t{0x7ff} << 52) * 0x1p-52;
      const bool power_of_two = (bits & ((uint64_t{1} << 52) - 1)) == 0;  // half the spacing below; and zero
      return !power_of_two && std::fabs(error) + bound < ulp * (0.5 * (1.0 - 0x1p-20));
    } else {
      const double unit = exp2_exact(e);
      if (bound == 0.0 && error == 0.0) {
        result = static_cast<Float>(value * unit);
        return true;
      }
      // |error| <= 2^-53 |value|: the margin covers it and the roundings of the two ends.
      const double margin = std::fabs(value) * 0x1p-51 + 2.0 * bound;
      result = static_cast<Float>((value - margin) * unit);
      return result == static_cast<Float>((value + margin) * unit) && result != Float{};
    }
  }
};

template <class Float>
AnchoredOutcome multiply(const AnchoredOperand& left, const AnchoredOperand& right, const Target& target,
                         int64_t limit, int threads, const Poll& poll) {
  const Panels &a = left.panels, &b = right.panels;
  const AnchoredKernel& run = a.isa->anchored;
  // About 60 ps for a term, 5 ns to round an element.
  const double cells = static_cast<double>(a.vectors) * static_cast<double>(b.vectors);
  threads = useful_threads(cells * (0.06 * static_cast<double>(a.depth) + 5.0), threads);
  const PanelTiles tiles(a, b, threads);
  AnchoredOutcome outcome;
  std::mutex lock;
  std::atomic<int64_t> open{0};
  parallel_for(tiles.count, threads, poll, [&](int64_t index) {
    if (open.load(std::memory_order_relaxed) > limit) return;
    thread_local std::vector<double> sums;
    const int64_t i0 = index / tiles.across * tiles.rows, j0 = index % tiles.across * tiles.columns;
    const int64_t rows = std::min(tiles.rows, a.vectors - i0), columns = std::min(tiles.columns, b.vectors - j0);
    const auto padded = [](int64_t count, int width) { return (count + width - 1) / width * width; };
    const int64_t ld = padded(columns, run.nr), cells = padded(rows, run.mr) * ld;
    sums.assign(static_cast<size_t>(2 * cells), 0.0);
    double *head = sums.data(), *tail = head + cells;
    for (int64_t i = 0; i < rows; ++i) {
      const double anchor = 3.0 * exp2_exact(left.norm[static_cast<size_t>(i0 + i)]);  // 1.5 2^(norm_i + 1)
      const double* scale = right.scale.data() + j0;
      for (int64_t j = 0; j < columns; ++j) head[i * ld + j] = anchor * scale[j];
    }
    for (int64_t p = 0; p < a.depth; p += kPanelDepth) {
      Loop::checkpoint();
      const int64_t depth = std::min(kPanelDepth, a.depth - p);
      for (int64_t j = 0; j < columns; j += run.nr)
        for (int64_t i = 0; i < rows; i += run.mr)
          run.multiply(a.at<double>((i0 + i) / run.mr, p), b.at<double>((j0 + j) / run.nr, p), depth,
                       head + i * ld + j, tail + i * ld + j, ld);
    }
    RowRounding<Float> rounding(left, right, target);
    for (int64_t i = 0; i < rows; ++i) rounding.row(head + i * ld, tail + i * ld, i0 + i, j0, columns);
    open.fetch_add(static_cast<int64_t>(rounding.uncertain.size()), std::memory_order_relaxed);
    const std::lock_guard guard(lock);
    outcome.zeros += rounding.zeros;
    outcome.uncertain.insert(outcome.uncertain.end(), rounding.uncertain.begin(), rounding.uncertain.end());
  });
  outcome.complete = open.load() <= limit;
  std::sort(outcome.uncertain.begin(), outcome.uncertain.end(),
            [](const Index& x, const Index& y) { return x.i != y.i ? x.i < y.i : x.j < y.j; });
  return outcome;
}

// A whole panel, with its width or its stride known to the compiler.
template <class T, class Stride, class Width>
void scale_panel(const T* in, Stride stride_v, int64_t stride_k, int64_t depth, Width width, const double* first,
                 const double* second, double* __restrict square, double* __restrict out) {
  for (int64_t p = 0; p < depth; ++p, in += stride_k, out += width) {
    if (p % 65536 == 0) Loop::checkpoint();
    for (int64_t v = 0; v < width; ++v) {
      const double value = finite_or_zero(static_cast<double>(in[v * stride_v])) * first[v] * second[v];
      out[v] = value;
      square[v] += value * value;
    }
  }
}

}  // namespace

AnchoredOperand pack_anchored(const Isa& isa, bool left, const View& x, const int32_t* top, const int32_t* lsb,
                              int threads, const Poll& poll) {
  const int width = left ? isa.anchored.mr : isa.anchored.nr;
  const auto n = static_cast<size_t>(x.vectors);
  AnchoredOperand o{make_panels(isa, left, width, sizeof(double), x.vectors, x.depth),
                    std::vector<int32_t>(n), std::vector<int32_t>(n), std::vector<int32_t>(n), false, {}, {}, {}};
  const double ns = 1.5 * static_cast<double>(x.vectors) * static_cast<double>(x.depth);
  parallel_for(o.panels.panels(), useful_threads(ns, threads), poll, [&](int64_t panel) {
    const int64_t v0 = panel * width, nv = std::min<int64_t>(width, x.vectors - v0);
    double first[kMaxWidth] = {}, second[kMaxWidth] = {}, square[kMaxWidth] = {};
    for (int64_t v = 0; v < nv; ++v) {
      const auto u = static_cast<size_t>(v0 + v);
      const bool zero = top[u] == kNoExponent;
      o.top[u] = zero ? 0 : top[u];
      o.lowest[u] = zero ? -kNoExponent : lsb[u] - top[u];  // zeros are multiples of anything
      split_scale(-o.top[u], first[v], second[v]);
    }
    dispatch_float(x.type, [&]<class T>(T) {
      const T* base = static_cast<const T*>(x.data) + v0 * x.stride_v;
      double* out = o.panels.at<double>(panel, 0);
      if (nv == width && x.stride_v == 1)
        scale_panel(base, std::integral_constant<int64_t, 1>{}, x.stride_k, x.depth, width, first, second, square, out);
      else if (nv == width && width == 4)
        scale_panel(base, x.stride_v, x.stride_k, x.depth, std::integral_constant<int, 4>{}, first, second, square, out);
      else
        for (int64_t p = 0; p < x.depth; ++p, out += width)
          for (int64_t v = 0; v < width; ++v) {
            const double value = v < nv ? static_cast<double>(base[p * x.stride_k + v * x.stride_v]) : 0.0;
            out[v] = finite_or_zero(value) * first[v] * second[v];
            square[v] += out[v] * out[v];
          }
    });
    for (int64_t v = 0; v < nv; ++v) {
      // Rounding errors of the sum of squares are below 2^-53 (depth + 1) of it; depth < 2^31.
      int e = 0;
      if (square[v] > 0.0) std::frexp(square[v] * (1.0 + 0x1p-20), &e);  // below 2^e
      o.norm[static_cast<size_t>(v0 + v)] = (e + 1 + 64) / 2 - 32;       // ceil(e / 2)
    }
  });
  o.ordinary = std::all_of(o.top.begin(), o.top.end(), [](int32_t t) { return std::abs(t) <= kSafeExponent / 2; });
  if (left) return o;
  const auto whole = static_cast<size_t>(o.panels.panels() * width);
  o.scale.assign(whole, 1.0);
  o.slack.assign(whole, 0.0);
  o.factor.assign(whole, 1.0);
  for (size_t v = 0; v < n; ++v) {
    o.scale[v] = exp2_exact(o.norm[v]);
    o.slack[v] = static_cast<double>(o.lowest[v] - o.norm[v]);
    if (o.ordinary) o.factor[v] = exp2_exact(o.top[v]);
  }
  return o;
}

AnchoredOutcome multiply_anchored(const AnchoredOperand& left, const AnchoredOperand& right, const Target& target,
                                  int64_t limit, int threads, const Poll& poll) {
  return target.kind == Out::f32 ? multiply<float>(left, right, target, limit, threads, poll)
                                 : multiply<double>(left, right, target, limit, threads, poll);
}

bool exact_product(const Isa& isa, const View& a, const View& b, const Target& target, int threads, const Poll& poll) {
  const Scan left = scan_floats(isa, a, nullptr, threads, poll), right = scan_floats(isa, b, nullptr, threads, poll);
  for (const Scan* s : {&left, &right})
    for (size_t v = 0; v < s->top.size(); ++v)
      if (s->special[v] || (s->top[v] != kNoExponent && s->top[v] - s->lsb[v] > kAnchoredSpan)) return false;
  const AnchoredOutcome outcome = multiply_anchored(
      pack_anchored(isa, true, a, left.top.data(), left.lsb.data(), threads, poll),
      pack_anchored(isa, false, b, right.top.data(), right.lsb.data(), threads, poll), target,
      a.vectors * b.vectors / 16 + 4, threads, poll);
  if (!outcome.complete) return false;
  if (outcome.zeros) fix_negative_zeros(a, b, target, threads, poll);
  exact_dots(a, b, outcome.uncertain.data(), static_cast<int64_t>(outcome.uncertain.size()), target, threads, poll);
  return true;
}

}  // namespace gemmulate
