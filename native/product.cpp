#include "product.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "bigint.hpp"
#include "modulo.hpp"
#include "narrow.hpp"
#include "tiles.hpp"

namespace gemmulate {
namespace {

template <class T>
T* element(const Target& t, int64_t i, int64_t j) {
  return static_cast<T*>(t.data) + i * t.stride_i + j * t.stride_j;
}

// Bit length of v as a two's complement number, its sign included.
inline int signed_bits(Int128 v) { return bit_length(static_cast<UInt128>(v < 0 ? ~v : v)) + 1; }

inline int signed_bits(const uint64_t* w, int n) {
  const uint64_t sign = w[n - 1] >> 63 ? ~uint64_t{0} : 0;
  int top = n - 1;
  while (top > 0 && w[top] == sign) --top;
  return 64 * top + bit_length(w[top] ^ sign) + 1;
}

// Finishes one row of a tile from its CRT limbs.
class Finisher {
 public:
  Finisher(const Recombination& recombination, const Target& to, const Operand& a, const Operand& b)
      : r(recombination), target(to), left(a), right(b) {}

  const Recombination& r;
  const Target& target;
  const Operand& left;
  const Operand& right;
  int bits = 0;
  int64_t zeros = 0;
  std::vector<Index> uncertain;

  // The row i of a tile: columns [j0, j0 + columns) of n with padding.
  void row(const double* acc, int64_t n, int64_t i, int64_t j0, int64_t columns) {
    switch (target.kind) {
      case Out::f64: return floats<double>(acc, n, i, j0, columns);
      case Out::f32: return floats<float>(acc, n, i, j0, columns);
      case Out::f16: return floats<Float16>(acc, n, i, j0, columns);
      case Out::bf16: return floats<Bfloat16>(acc, n, i, j0, columns);
      case Out::pair: return pairs(acc, n, i, j0, columns);
      case Out::mod: return modular(acc, n, i, j0, columns);
      default: return integers(acc, n, i, j0, columns);
    }
  }

 private:
  template <class Float>
  void floats(const double* acc, int64_t n, int64_t i, int64_t j0, int64_t columns) {
    if (r.crt.limbs <= 4 && vector_floats<Float>(acc, n, i, j0, columns)) return;
    scalar_floats<Float>(acc, n, i, j0, columns);
  }

  template <class Float>
  bool vector_floats(const double* acc, int64_t n, int64_t i, int64_t j0, int64_t columns) {
    scale_.resize(static_cast<size_t>(n));
    value_.resize(static_cast<size_t>(n));
    hard_.resize(static_cast<size_t>(n));
    bool rounded = false;
    for (int64_t j = 0; j < columns; ++j) {
      const int e = r.row_exponent[i] + r.column_exponent[j0 + j];
      // The integer lies in [1, 2^160): the result is a normal number.
      if (e < -1022 || e > 860) return false;
      scale_[static_cast<size_t>(j)] = exp2_exact(e);
    }
    std::fill(scale_.begin() + columns, scale_.end(), 0.0);
    if (r.check) {
      bound_.resize(static_cast<size_t>(n));
      const double unit_i = std::ldexp(1.0, r.bits_right - 1), unit_j = std::ldexp(1.0, r.bits_left - 1);
      const double row = left.inexact[static_cast<size_t>(i)] * unit_i;
      for (int64_t j = 0; j < columns; ++j) {
        bound_[static_cast<size_t>(j)] = row + right.inexact[static_cast<size_t>(j0 + j)] * unit_j;
        rounded |= bound_[static_cast<size_t>(j)] > 0.0;
      }
      std::fill(bound_.begin() + columns, bound_.end(), 0.0);
    }
    left.isa->round(acc, n, r.crt.limbs, scale_.data(), rounded && sizeof(Float) == 8 ? bound_.data() : nullptr,
                    sizeof(Float) < 8, value_.data(), hard_.data());
    for (int64_t j = 0; j < columns; ++j) {
      const auto value = static_cast<Float>(value_[static_cast<size_t>(j)]);
      *element<Float>(target, i, j0 + j) = value;
      zeros += value == Float{};
    }
    for (int64_t j = 0; j < columns; ++j)
      if (hard_[static_cast<size_t>(j)] || (rounded && sizeof(Float) < 8)) {
        zeros -= *element<Float>(target, i, j0 + j) == Float{};
        scalar_floats<Float>(acc + j, n, i, j0 + j, 1);
      }
    return true;
  }

  template <class Float>
  void scalar_floats(const double* acc, int64_t n, int64_t i, int64_t j0, int64_t columns) {
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t e = int64_t{r.row_exponent[i]} + r.column_exponent[j0 + j];
      Float value;
      const int32_t ni = r.check ? left.inexact[static_cast<size_t>(i)] : 0;
      const int32_t nj = r.check ? right.inexact[static_cast<size_t>(j0 + j)] : 0;
      if (ni | nj) {
        value = certain<Float>(acc + j, n, e, ni, nj, i, j0 + j);
      } else if (r.crt.limbs <= 3) {
        value = round_int128<Float>(integer(acc + j, n), e);
      } else {
        uint64_t w[kWords];
        limbs_to_words(acc + j, n, r.crt.limbs, w, kWords);
        value = round_words<Float>(w, kWords, e);
      }
      zeros += value == Float{};
      *element<Float>(target, i, j0 + j) = value;
    }
  }

  void pairs(const double* acc, int64_t n, int64_t i, int64_t j0, int64_t columns) {
    scale_.resize(static_cast<size_t>(n));
    value_.resize(static_cast<size_t>(2 * n));
    hard_.assign(static_cast<size_t>(n), 0);
    double *high = value_.data(), *low = high + n;
    const auto exponent = [&](int64_t j) { return int64_t{r.row_exponent[i]} + r.column_exponent[j0 + j]; };
    int64_t least = 0, most = 0;
    for (int64_t j = 0; j < columns; ++j) {
      least = std::min(least, exponent(j));
      most = std::max(most, exponent(j));
    }
    // Both parts are integers below 2^(40 limbs) times 2^exponent: normal numbers or zero.
    if (least >= -1022 && most + kLimbBits * r.crt.limbs <= 1023) {
      for (int64_t j = 0; j < columns; ++j) scale_[static_cast<size_t>(j)] = exp2_exact(static_cast<int>(exponent(j)));
      std::fill(scale_.begin() + columns, scale_.end(), 0.0);
      left.isa->pair.round(acc, n, r.crt.limbs, scale_.data(), high, low, hard_.data());
    } else {
      std::fill(hard_.begin(), hard_.begin() + columns, 1);
    }
    const int words = kLimbBits * r.crt.limbs / 64 + 1;
    for (int64_t j = 0; j < columns; ++j) {
      if (hard_[static_cast<size_t>(j)]) {
        uint64_t w[kWords];
        limbs_to_words(acc + j, n, r.crt.limbs, w, words);
        const Pair value = round_pair(w, words, exponent(j));
        high[j] = value.high;
        low[j] = value.low;
      }
      zeros += high[j] == 0.0;
    }
    double *out = element<double>(target, i, j0), *rest = target.low + i * target.low_stride_i + j0 * target.low_stride_j;
    for (int64_t j = 0; j < columns; ++j) {
      out[j * target.stride_j] = high[j];
      rest[j * target.low_stride_j] = low[j];
    }
  }

  void modular(const double* acc, int64_t n, int64_t i, int64_t j0, int64_t columns) {
    low_.resize(static_cast<size_t>(n));
    left.isa->modular.limbs(acc, n, r.crt.limbs, target.modulus, low_.data());
    for (int64_t j = 0; j < columns; ++j) *element<int64_t>(target, i, j0 + j) = low_[static_cast<size_t>(j)];
  }

  void integers(const double* acc, int64_t n, int64_t i, int64_t j0, int64_t columns) {
    if (target.kind != Out::words) {
      low_.resize(static_cast<size_t>(n));
      // Below 2^62 (with the rounding of the estimate) the low 64 bits are the integer.
      if (left.isa->low_bits(acc, n, r.crt.limbs, low_.data()) < 0x1p62) {
        int64_t ones = 0;
        for (int64_t j = 0; j < columns; ++j) {
          const int64_t v = low_[static_cast<size_t>(j)];
          ones |= v ^ (v >> 63);
          *element<int64_t>(target, i, j0 + j) = v;
        }
        bits = std::max(bits, bit_length(static_cast<uint64_t>(ones)) + 1);
        return;
      }
    }
    if (r.crt.limbs <= 3 && target.kind != Out::words) {
      for (int64_t j = 0; j < columns; ++j) {
        const Int128 v = integer(acc + j, n);
        bits = std::max(bits, signed_bits(v));
        *element<int64_t>(target, i, j0 + j) = static_cast<int64_t>(v);
      }
      return;
    }
    for (int64_t j = 0; j < columns; ++j) {
      uint64_t w[kWords];
      limbs_to_words(acc + j, n, r.crt.limbs, w, kWords);
      bits = std::max(bits, signed_bits(w, kWords));
      if (target.kind == Out::words)
        std::memcpy(static_cast<uint64_t*>(target.data) + (i * target.stride_i + (j0 + j) * target.stride_j) * target.words,
                    w, sizeof(uint64_t) * static_cast<size_t>(target.words));
      else
        *element<int64_t>(target, i, j0 + j) = static_cast<int64_t>(w[0]);
    }
  }

  static constexpr int kWords = (kLimbBits * kMaxLimbs + 63) / 64 + 1;
  std::vector<double> scale_, bound_, value_;
  std::vector<uint8_t> hard_;
  std::vector<int64_t> low_;

  Int128 integer(const double* acc, int64_t n) const {
    UInt128 v = 0;
    for (int w = r.crt.limbs - 1; w >= 0; --w)
      v = (v << kLimbBits) + static_cast<UInt128>(static_cast<Int128>(static_cast<int64_t>(acc[w * n])));
    return static_cast<Int128>(v);
  }

  template <class Float>
  Float certain(const double* acc, int64_t n, int64_t e, int32_t ni, int32_t nj, int64_t i, int64_t j) {
    uint64_t low[kWords], high[kWords];
    limbs_to_words(acc, n, r.crt.limbs, low, kWords);
    std::memcpy(high, low, sizeof low);
    add_shifted(low, kWords, static_cast<uint64_t>(ni), r.bits_right - 1, true);
    add_shifted(low, kWords, static_cast<uint64_t>(nj), r.bits_left - 1, true);
    add_shifted(high, kWords, static_cast<uint64_t>(ni), r.bits_right - 1, false);
    add_shifted(high, kWords, static_cast<uint64_t>(nj), r.bits_left - 1, false);
    const bool crosses_zero = (low[kWords - 1] ^ high[kWords - 1]) >> 63;
    const Float a = round_words<Float>(low, kWords, e), b = round_words<Float>(high, kWords, e);
    // An interval that touches zero does not know the sign of a result that rounds to zero.
    if (crosses_zero || std::memcmp(&a, &b, sizeof(Float)) != 0 || a == Float{}) uncertain.push_back({i, j});
    return a;
  }
};

// out[j] = sum[j] + row + za column[j]; returns the union of the bits of v or ~v, whichever is not negative.
template <class T>
int64_t add_corrections(const int32_t* sum, const int64_t* column, int64_t za, int64_t row, int64_t n, T* out) {
  int64_t ones = 0;
  if (za == 0) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t v = sum[j] + row;
      ones |= v < 0 ? ~v : v;
      out[j] = static_cast<T>(v);
    }
  } else {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t v = sum[j] + row + za * column[j];
      ones |= v < 0 ? ~v : v;
      out[j] = static_cast<T>(v);
    }
  }
  return ones;
}

}  // namespace

namespace {

// Residues of the four quadrants of a tile, y[quadrant][modulus][cells], from the seven products of each modulus:
// C11 = P1 + P2, C12 = U2 + P5 + P3, C21 = U3 - P4, C22 = U3 + P5 with U2 = P1 + P6, U3 = U2 + P7.
void quadrant_residues(const Operand& left, const Operand& right, const Region& t, const std::vector<Modulus>& modulus,
                       std::vector<int32_t>& sums, int8_t* y) {
  const int64_t cells = t.padded_rows * t.padded_columns;
  sums.resize(static_cast<size_t>(3 * cells));
  int32_t *u = sums.data(), *p5 = u + cells, *c = p5 + cells;
  constexpr int64_t kFold4 = kFoldDepth / 4 / 4;  // sums of four products
  for (int l = 0; l < left.planes; ++l) {
    int8_t* const to = y + l * cells;
    const int64_t quadrant = left.planes * cells;
    for (int64_t k0 = 0; k0 < left.k4; k0 += kFold4) {
      const int64_t k1 = std::min(left.k4, k0 + kFold4);
      const auto product = [&](int factor, int32_t* into, bool accumulate) {
        multiply_plane(left, right, kFactors * l + factor, t.i0, t.padded_rows, t.j0, t.padded_columns, k0, k1, into,
                       t.padded_columns, accumulate);
      };
      const auto finish = [&](int64_t q, int32_t* sum) {
        int8_t* const out = to + q * quadrant;
        if (k0 > 0)  // the residue carries the sum so far into the next part
          for (int64_t e = 0; e < cells; ++e) sum[e] += out[e];
        left.isa->residues.reduce(sum, cells, modulus[static_cast<size_t>(l)], out);
      };
      product(0, u, false);
      std::copy(u, u + cells, c);
      product(1, c, true);
      finish(0, c);
      product(5, u, true);
      product(4, p5, false);
      for (int64_t e = 0; e < cells; ++e) c[e] = u[e] + p5[e];
      product(2, c, true);
      finish(1, c);
      product(6, u, true);
      for (int64_t e = 0; e < cells; ++e) c[e] = u[e] + p5[e];
      finish(3, c);
      product(3, u, true);
      finish(2, u);
    }
  }
}

}  // namespace

Outcome multiply_residues(const Operand& left, const Operand& right, const Recombination& r, const Target& target,
                          int threads, const Poll& poll) {
  Outcome outcome;
  std::mutex lock;
  const Isa& isa = *left.isa;
  for_tiles(left, right, threads, poll, [&](const Region& t) {
    thread_local std::vector<int32_t> sums;
    thread_local std::vector<int8_t> residues;
    thread_local std::vector<double> acc;
    const int64_t cells = t.padded_rows * t.padded_columns;
    residues.resize(static_cast<size_t>(cells * left.planes * (left.halved ? 4 : 1)));
    acc.resize(static_cast<size_t>(r.crt.limbs * t.padded_columns));
    if (left.halved) {
      quadrant_residues(left, right, t, r.modulus, sums, residues.data());
    } else {
      sums.resize(static_cast<size_t>(cells));
      for (int l = 0; l < left.planes; ++l)
        plane_residues(left, right, l, t, r.modulus[static_cast<size_t>(l)], sums.data(), residues.data() + l * cells);
    }
    Finisher finish(r, target, left, right);
    for (int64_t quadrant = 0; quadrant < (left.halved ? 4 : 1); ++quadrant) {
      const int64_t i0 = t.i0 + quadrant / 2 * left.span, j0 = t.j0 + quadrant % 2 * right.span;
      const int64_t rows = std::min(t.rows, left.vectors - i0), columns = std::min(t.columns, right.vectors - j0);
      const int8_t* y = residues.data() + quadrant * left.planes * cells;
      for (int64_t i = 0; columns > 0 && i < rows; ++i) {
        isa.crt(y + i * t.padded_columns, cells, t.padded_columns, r.crt, acc.data());
        finish.row(acc.data(), t.padded_columns, i0 + i, j0, columns);
      }
    }
    const std::lock_guard guard(lock);
    outcome.bits = std::max(outcome.bits, finish.bits);
    outcome.zeros += finish.zeros;
    outcome.uncertain.insert(outcome.uncertain.end(), finish.uncertain.begin(), finish.uncertain.end());
  });
  std::sort(outcome.uncertain.begin(), outcome.uncertain.end(),
            [](const Index& a, const Index& b) { return a.i != b.i ? a.i < b.i : a.j < b.j; });
  return outcome;
}

Outcome multiply_direct(const Operand& left, const Operand& right, const Target& target, int threads,
                        const Poll& poll) {
  Outcome outcome;
  std::mutex lock;
  constexpr int64_t kDepth4 = 65536 / 4;  // u8 x s8 is exact in int32 to depth 65,793
  const int64_t za = left.zero_point, zb = right.zero_point;
  const Modulo modulo(target.kind == Out::mod ? target.modulus : 1);
  const auto finish = [&](int64_t i, int64_t j, int64_t sum) -> Int128 {
    return static_cast<Int128>(sum) + static_cast<Int128>(za) * right.sums[static_cast<size_t>(j)] +
           static_cast<Int128>(zb) * left.sums[static_cast<size_t>(i)] +
           static_cast<Int128>(za) * zb * left.depth;
  };
  const bool deep = left.k4 > kDepth4;
  // Where every correction and every sum of them fits int32 (any operands of bytes to depth 2^14 at least) and one
  // product has the whole depth, the loops of the instruction set run; else those below.
  const auto largest = [](const std::vector<int64_t>& sums) {
    int64_t most = 0;
    for (const int64_t s : sums) most = std::max(most, std::abs(s));
    return static_cast<Int128>(most);
  };
  const auto magnitude = [](int64_t z) { return static_cast<Int128>(z < 0 ? -static_cast<Int128>(z) : z); };
  const bool narrow = !deep && target.stride_j == 1 && target.kind != Out::u64 &&
                      static_cast<Int128>(255 * 128) * left.depth + magnitude(za) * largest(right.sums) +
                              magnitude(zb) * largest(left.sums) + magnitude(za) * magnitude(zb) * left.depth <
                          (Int128{1} << 31);
  std::vector<int32_t> corrections(narrow ? right.sums.size() : 0);
  for (size_t j = 0; j < corrections.size(); ++j) corrections[j] = static_cast<int32_t>(za * right.sums[j]);
  for_tiles(left, right, threads, poll, [&](const Region& t) {
    thread_local std::vector<int32_t> sums;
    thread_local std::vector<int64_t> total;
    const int64_t ld = t.padded_columns, cells = t.padded_rows * ld;
    sums.resize(static_cast<size_t>(cells));
    if (deep) total.assign(static_cast<size_t>(cells), 0);
    for (int64_t k0 = 0;; k0 += kDepth4) {
      const int64_t k1 = std::min(left.k4, k0 + kDepth4);
      multiply_plane(left, right, 0, t.i0, t.padded_rows, t.j0, ld, k0, k1, sums.data(), ld, false);
      if (deep)
        for (int64_t e = 0; e < cells; ++e) total[static_cast<size_t>(e)] += sums[static_cast<size_t>(e)];
      if (k1 == left.k4) break;
    }
    int bits = 0;
    const bool small = magnitude(za) < (int64_t{1} << 31) && magnitude(zb) < (int64_t{1} << 24) &&
                       left.depth < (int64_t{1} << 20);  // every correction and its sum fit int64
    for (int64_t i = 0; narrow && i < t.rows; ++i) {
      const auto row = static_cast<int32_t>(zb * left.sums[static_cast<size_t>(t.i0 + i)] + za * zb * left.depth);
      const int32_t *sum = sums.data() + i * ld, *column = corrections.data() + t.j0;
      if (target.kind == Out::mod) {
        left.isa->modular.correct(sum, column, row, t.columns, target.modulus,
                                  element<int64_t>(target, t.i0 + i, t.j0));
        continue;
      }
      const int32_t ones =
          target.kind == Out::i32
              ? left.isa->bytes.correct_i32(sum, column, row, t.columns, element<int32_t>(target, t.i0 + i, t.j0))
              : left.isa->bytes.correct_i64(sum, column, row, t.columns, element<int64_t>(target, t.i0 + i, t.j0));
      bits = std::max(bits, bit_length(static_cast<uint64_t>(ones)) + 1);
    }
    for (int64_t i = 0; !narrow && i < t.rows; ++i) {
      const int64_t row = small ? zb * left.sums[static_cast<size_t>(t.i0 + i)] + za * zb * left.depth : 0;
      if (small && !deep && target.stride_j == 1 && target.kind != Out::mod) {  // the loops that vectorise
        const int32_t* sum = sums.data() + i * ld;
        const int64_t* column = right.sums.data() + t.j0;
        const int64_t ones = target.kind == Out::i32
                                 ? add_corrections(sum, column, za, row, t.columns,
                                                   element<int32_t>(target, t.i0 + i, t.j0))
                                 : add_corrections(sum, column, za, row, t.columns,
                                                   element<int64_t>(target, t.i0 + i, t.j0));
        bits = std::max(bits, bit_length(static_cast<uint64_t>(ones)) + 1);
        continue;
      }
      int64_t largest = 0;
      for (int64_t j = 0; j < t.columns; ++j) {
        const int64_t sum = deep ? total[static_cast<size_t>(i * ld + j)] : sums[static_cast<size_t>(i * ld + j)];
        int64_t value;
        if (small) {
          value = sum + row + za * right.sums[static_cast<size_t>(t.j0 + j)];
          largest |= value ^ (value >> 63);
        } else {
          const Int128 v = finish(t.i0 + i, t.j0 + j, sum);
          bits = std::max(bits, signed_bits(v));
          value = static_cast<int64_t>(v);
        }
        if (target.kind == Out::mod && small) {
          value = static_cast<int64_t>(modulo.of_signed(value));
        } else if (target.kind == Out::mod) {
          const auto p = static_cast<Int128>(target.modulus);
          const Int128 rest = finish(t.i0 + i, t.j0 + j, sum) % p;
          value = static_cast<int64_t>(rest < 0 ? rest + p : rest);
        }
        if (target.kind == Out::i32)
          *element<int32_t>(target, t.i0 + i, t.j0 + j) = static_cast<int32_t>(value);
        else
          *element<int64_t>(target, t.i0 + i, t.j0 + j) = value;
      }
      bits = std::max(bits, bit_length(static_cast<uint64_t>(largest)) + 1);
    }
    const std::lock_guard guard(lock);
    outcome.bits = std::max(outcome.bits, bits);
  });
  return outcome;
}

std::vector<int64_t> assess(const Operand& left, const Operand& right, const uint64_t* sum_left,
                            const uint64_t* sum_right, double budget, uint8_t* need, int threads, const Poll& poll) {
  std::vector<int64_t> hist(256, 0);
  std::mutex lock;
  constexpr int64_t kDepth4 = 65536 / 4;  // 127 * 127 * 65536 < 2^31
  for_tiles(left, right, threads, poll, [&](const Region& t) {
    thread_local std::vector<int32_t> sums;
    thread_local std::vector<double> total;
    const int64_t ld = t.padded_columns, cells = t.padded_rows * ld;
    sums.resize(static_cast<size_t>(cells));
    total.assign(static_cast<size_t>(cells), 0.0);
    for (int64_t k0 = 0;; k0 += kDepth4) {
      const int64_t k1 = std::min(left.k4, k0 + kDepth4);
      multiply_plane(left, right, 0, t.i0, t.padded_rows, t.j0, ld, k0, k1, sums.data(), ld, false);
      for (int64_t e = 0; e < cells; ++e) total[static_cast<size_t>(e)] += sums[static_cast<size_t>(e)];
      if (k1 == left.k4) break;
    }
    thread_local std::vector<double> columns;
    thread_local std::vector<uint8_t> bits;
    columns.assign(static_cast<size_t>(ld), 0.0);  // sums are below 2^46: exact
    for (int64_t j = 0; j < t.columns; ++j) columns[static_cast<size_t>(j)] = static_cast<double>(sum_right[t.j0 + j]);
    bits.resize(static_cast<size_t>(ld));
    int64_t local[2][256] = {};  // two, so that equal neighbours do not wait for each other
    for (int64_t i = 0; i < t.rows; ++i) {
      left.isa->bits_needed(total.data() + i * ld, columns.data(), static_cast<double>(sum_left[t.i0 + i]), budget, ld,
                            bits.data());
      std::copy_n(bits.data(), t.columns, need + (t.i0 + i) * right.vectors + t.j0);
      for (int64_t j = 0; j < t.columns; ++j) ++local[j % 2][bits[static_cast<size_t>(j)]];
    }
    const std::lock_guard guard(lock);
    for (int n = 0; n < 256; ++n) hist[static_cast<size_t>(n)] += local[0][n] + local[1][n];
  });
  return hist;
}

}  // namespace gemmulate
