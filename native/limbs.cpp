#include "limbs.hpp"

#include <algorithm>

namespace gemmulate {
namespace {

// A tile of two register tiles each way: 1,536 cells (AVX512) with 54 digits of 8 bytes and 44 residues take 730 KB of a
// 1 MiB second-level cache at 1,024-bit entries.
constexpr int64_t kTilesEachWay = 2;
constexpr int64_t kDepth4 = 2048 / 4;  // one pass of a micro-panel

struct Tile {
  int64_t i0, j0, rows, columns;  // whole micro-panels
};

// c (+)= one plane of one pair of limbs.
void multiply_plane(const Operand& left, const Operand& right, int l, const Tile& t, int64_t q0, int64_t k4,
                    int32_t* c, bool accumulate) {
  const Isa& isa = *left.isa;
  for (int64_t j = 0; j < t.columns; j += isa.nr) {
    const auto* b = reinterpret_cast<const int8_t*>(right.plane((t.j0 + j) / isa.nr, l)) + q0 * isa.nr * 4;
    for (int64_t i = 0; i < t.rows; i += isa.mr)
      isa.igemm(left.plane((t.i0 + i) / isa.mr, l) + q0 * isa.mr * 4, b, k4, c + i * t.columns + j, t.columns,
                accumulate);
  }
}

// Signed digits of 40 bits, `stride` apart and not normalised, as two's complement words.
void digits_to_words(const int64_t* digit, int64_t stride, int64_t count, uint64_t* w, int64_t words) {
  int64_t carry = 0, at = 0;
  uint64_t word = 0;
  int filled = 0;
  for (int64_t d = 0; at < words; ++d) {
    const int64_t t = (d < count ? digit[d * stride] : 0) + carry;
    const uint64_t low = static_cast<uint64_t>(t) & ((uint64_t{1} << kLimbBits) - 1);
    carry = t >> kLimbBits;
    word |= low << filled;
    filled += kLimbBits;
    if (filled >= 64) {
      w[at++] = word;
      filled -= 64;
      word = filled ? low >> (kLimbBits - filled) : 0;
    }
  }
}

}  // namespace

// Tried: two levels of Karatsuba on the residues (36 products of planes instead of 64 for 8 limbs), coefficients combined
// by loops of the baseline instruction set. 0.4 to 0.8 of the speed at n = k = 64 to 256, 0.8 (512 bits) to 1.0
// (1,024 bits) at 512: combining costs what the products save (EPYC Zen 5, load 5 to 8, 2026-11-30).
void multiply_limbs(const std::vector<const Operand*>& left, const std::vector<const Operand*>& right, int limb_bits,
                    const std::vector<CrtTable>& tables, const std::vector<Modulus>& modulus, uint64_t* out,
                    int64_t words, int threads, const Poll& poll) {
  const Operand &a = *left.front(), &b = *right.front();
  const Isa& isa = *a.isa;
  const auto na = static_cast<int64_t>(left.size()), nb = static_cast<int64_t>(right.size()), sums = na + nb - 1;
  const auto offset = [&](int64_t s) { return s * limb_bits / kLimbBits; };
  int64_t digits = 0;
  for (int64_t s = 0; s < sums; ++s) digits = std::max(digits, offset(s) + tables[static_cast<size_t>(s)].limbs);
  const int64_t tile_rows = kTilesEachWay * isa.mr, tile_columns = kTilesEachWay * isa.nr;
  const int64_t across = (b.vectors + tile_columns - 1) / tile_columns;
  const int64_t count = (a.vectors + tile_rows - 1) / tile_rows * across;
  const double cells = static_cast<double>(a.vectors) * static_cast<double>(b.vectors);
  // About 3 ps for a multiply-add, a nanosecond for each coefficient's modulus and digit.
  const double ns = cells * (0.003 * static_cast<double>(a.depth * a.planes * na * nb) +
                             static_cast<double>(a.planes + digits) * static_cast<double>(sums));
  parallel_for(count, useful_threads(ns, threads), poll, [&](int64_t index) {
    thread_local std::vector<int32_t> sum;
    thread_local std::vector<int8_t> residues;
    thread_local std::vector<double> acc;
    thread_local std::vector<int64_t> total;
    Tile t{index / across * tile_rows, index % across * tile_columns, 0, 0};
    const int64_t rows = std::min(tile_rows, a.vectors - t.i0), columns = std::min(tile_columns, b.vectors - t.j0);
    t.rows = (rows + isa.mr - 1) / isa.mr * isa.mr;
    t.columns = (columns + isa.nr - 1) / isa.nr * isa.nr;
    const int64_t n = t.rows * t.columns;
    sum.resize(static_cast<size_t>(n));
    residues.resize(static_cast<size_t>(n * a.planes));
    acc.resize(static_cast<size_t>(kMaxLimbs * t.columns));
    total.assign(static_cast<size_t>(digits * n), 0);
    for (int64_t s = 0; s < sums; ++s) {
      for (int l = 0; l < a.planes; ++l) {
        int8_t* y = residues.data() + l * n;
        int64_t depth4 = 0;  // summed since the last reduction
        bool empty = true;
        for (int64_t i = std::max<int64_t>(0, s - nb + 1); i <= std::min(s, na - 1); ++i)
          for (int64_t q0 = 0; q0 < a.k4; q0 += kDepth4) {
            const int64_t k4 = std::min(kDepth4, a.k4 - q0);
            if (depth4 + k4 > kFoldDepth / 4) {  // the residue carries the sum so far into the next part
              isa.residues.reduce(sum.data(), n, modulus[static_cast<size_t>(l)], y);
              std::copy(y, y + n, sum.begin());
              depth4 = 0;
            }
            Loop::checkpoint();
            multiply_plane(*left[static_cast<size_t>(i)], *right[static_cast<size_t>(s - i)], l, t, q0, k4, sum.data(),
                           !empty);
            depth4 += k4;
            empty = false;
          }
        isa.residues.reduce(sum.data(), n, modulus[static_cast<size_t>(l)], y);
      }
      const CrtTable& table = tables[static_cast<size_t>(s)];
      for (int64_t i = 0; i < rows; ++i) {
        isa.crt(residues.data() + i * t.columns, n, t.columns, table, acc.data());
        for (int w = 0; w < table.limbs; ++w) {
          const double* limb = acc.data() + w * t.columns;
          int64_t* into = total.data() + (offset(s) + w) * n + i * t.columns;
          for (int64_t j = 0; j < t.columns; ++j) into[j] += static_cast<int64_t>(limb[j]);
        }
      }
    }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        digits_to_words(total.data() + i * t.columns + j, n, digits,
                        out + ((t.i0 + i) * b.vectors + t.j0 + j) * words, words);
  });
}

}  // namespace gemmulate
