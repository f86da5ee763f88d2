#include "digits.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "dispatch.hpp"
#include "tiles.hpp"

namespace gemmulate {
namespace {

// Vectors that one task packs and depth of one of its blocks: whole panels of every width, and runs of memory that are
// long enough for its prefetchers whichever way the matrix lies.
constexpr int64_t kGroup = 96, kRightGroup = 128, kDepth = 128, kAhead = 4;

// Remainders of n entries `stride` apart.
void read_run(const Isa& isa, const View& x, int64_t offset, int64_t stride, int64_t n, int64_t p, int64_t high,
              int32_t* out) {
  const auto* base = static_cast<const uint8_t*>(x.data);
  if (stride == 1) {
    const int item = item_bytes(x.type);
    return isa.modular.remainders(item, is_unsigned(x.type), base + offset * item, n, p, high, out);
  }
  dispatch_integer(x.type, [&]<class T>(T) {
    T copy[std::max(kRightGroup, kDepth)];
    const T* from = static_cast<const T*>(x.data) + offset;
    for (int64_t i = 0; i < n; ++i) copy[i] = from[i * stride];
    isa.modular.remainders(sizeof(T), is_unsigned(x.type), copy, n, p, high, out);
  });
}

}  // namespace

Operand pack_digits(const Isa& isa, bool left, const View& x, const DigitSystem& system, int threads,
                    const Poll& poll) {
  const int planes = system.planes();
  Operand o = make_operand(isa, left, planes, x.vectors, x.depth);
  const auto p = static_cast<int64_t>(system.p);
  const int64_t high = left ? p - 1 : system.balanced_high();
  const int64_t group = (left ? kGroup : kRightGroup) / o.width * o.width;
  const bool across = runs_across(x);
  const int item = item_bytes(x.type);
  const double ns = static_cast<double>(x.vectors) * static_cast<double>(x.depth) * (1.0 + 0.1 * planes);
  parallel_for((x.vectors + group - 1) / group, useful_threads(ns, threads), poll, [&](int64_t index) {
    thread_local std::vector<uint8_t> buffer;
    buffer.resize(static_cast<size_t>(planes * kRightGroup * kDepth));
    int32_t run[std::max(kRightGroup, kDepth)];
    const int64_t v0 = index * group, nv = std::min(group, x.vectors - v0), padded = (nv + o.width - 1) / o.width * o.width;
    for (int64_t p0 = 0; p0 < 4 * o.k4; p0 += kDepth) {
      if (p0 % (64 * kDepth) == 0) Loop::checkpoint();
      const int64_t np = std::min(kDepth, x.depth - p0), block = std::min(kDepth, 4 * o.k4 - p0);
      // Bytes [plane][vector][depth] or [plane][depth][vector], zero outside the matrix, as memory has them.
      const int64_t outer = across ? np : nv, inner = across ? nv : np, row = across ? kRightGroup : kDepth;
      const int64_t stride_outer = across ? x.stride_k : x.stride_v, stride_inner = across ? x.stride_v : x.stride_k;
      const int64_t plane = kRightGroup * kDepth;
      if (nv < padded || np < block) std::fill(buffer.begin(), buffer.end(), 0);
      for (int64_t i = 0; i < outer; ++i) {
        // Runs lie too far apart for the processor to see the next one coming.
        if (stride_inner == 1 && i + kAhead < outer) {
          const auto* next = static_cast<const uint8_t*>(x.data) +
                             (v0 * x.stride_v + p0 * x.stride_k + (i + kAhead) * stride_outer) * item;
          for (int64_t b = 0; b < inner * item; b += 64) __builtin_prefetch(next + b);
        }
        read_run(isa, x, v0 * x.stride_v + p0 * x.stride_k + i * stride_outer, stride_inner, inner, p, high, run);
        isa.modular.cut(system.bits, system.digits, !left, run, inner, buffer.data() + i * row, plane);
      }
      for (int64_t v = 0; v < padded; v += o.width)
        for (int l = 0; l < planes; ++l)
          isa.bytes.pack(buffer.data() + l * plane + v * (across ? 1 : kDepth), across ? 1 : kDepth,
                         across ? kRightGroup : 1, o.width, block,
                         const_cast<uint8_t*>(o.plane((v0 + v) / o.width, l)) + p0 * o.width);
    }
  });
  return o;
}

void multiply_digits(const Operand& left, const Operand& right, const DigitSystem& system, const Target& target,
                     int threads, const Poll& poll) {
  // The products of planes, each into one sum, and what the sums weigh in the result.
  struct Product {
    int left, right, sum;
  };
  const int digits = system.digits, planes = system.planes();
  const auto p = static_cast<int64_t>(system.p);
  std::vector<Product> products;
  std::vector<int64_t> weight;
  if (system.bits == 8) {
    weight.assign(static_cast<size_t>(2 * digits - 1), 0);
    // Neighbours share an operand, which stays in the cache.
    for (int d = 0; d < digits; ++d)
      for (int e = 0; e < digits; ++e) products.push_back({d, d % 2 ? digits - 1 - e : e, 0});
    for (Product& q : products) {
      q.sum = q.left + q.right;
      weight[static_cast<size_t>(q.sum)] = int64_t{1} << (8 * q.sum);
    }
  } else {
    weight.assign(static_cast<size_t>(planes), 0);
    for (int l = 0; l < planes; ++l) products.push_back({l, l, l});
    int pair = digits;
    for (int d = 0; d < digits; ++d) {
      weight[static_cast<size_t>(d)] += int64_t{1} << (14 * d);
      for (int e = d + 1; e < digits; ++e) {
        const int64_t unit = int64_t{1} << (7 * (d + e));
        weight[static_cast<size_t>(pair++)] += unit;
        weight[static_cast<size_t>(d)] -= unit;
        weight[static_cast<size_t>(e)] -= unit;
      }
    }
  }
  // Modulo p of least magnitude: the sums of one pass, below 2^31 (two products of 8 bits) or 2^30 (one), times
  // weights of at most 2^15 and 2^20 add up to less than 2^53.
  std::vector<double> factor;
  for (int64_t w : weight) {
    w %= p;
    factor.push_back(static_cast<double>(w > p / 2 ? w - p : w < -(p / 2) ? w + p : w));
  }
  constexpr int64_t kPass = kFoldDepth / 4;
  const Isa& isa = *left.isa;
  for_tiles(left, right, threads, poll, [&](const Region& t) {
    thread_local std::vector<int32_t> sums;
    thread_local std::vector<int64_t> row;
    const int64_t ld = t.padded_columns, cells = t.padded_rows * ld;
    const int count = static_cast<int>(factor.size());
    sums.resize(static_cast<size_t>(count * cells));
    row.resize(static_cast<size_t>(ld));
    for (int64_t k0 = 0; k0 < left.k4; k0 += kPass) {
      const int64_t k1 = std::min(left.k4, k0 + kPass);
      unsigned begun = 0;
      for (const Product& q : products) {
        multiply_planes(left, q.left, right, q.right, t.i0, t.padded_rows, t.j0, ld, k0, k1, sums.data() + q.sum * cells,
                        ld, begun >> q.sum & 1);
        begun |= 1u << q.sum;
      }
      for (int64_t i = 0; i < t.rows; ++i) {
        int64_t* const to = static_cast<int64_t*>(target.data) + (t.i0 + i) * target.stride_i + t.j0 * target.stride_j;
        const bool direct = target.stride_j == 1;
        int64_t* const out = direct ? to : row.data();
        if (!direct && k0 > 0)
          for (int64_t j = 0; j < t.columns; ++j) out[j] = to[j * target.stride_j];
        isa.modular.combine(count, sums.data() + i * ld, cells, factor.data(), t.columns, p, k0 > 0, out);
        if (!direct)
          for (int64_t j = 0; j < t.columns; ++j) to[j * target.stride_j] = out[j];
      }
    }
  });
}

}  // namespace gemmulate
