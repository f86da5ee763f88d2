#include "exactdot.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "bigint.hpp"
#include "dispatch.hpp"

namespace gemmulate {
namespace {

// A fixed-point number that holds every sum of products of doubles: bit 0 is 2^-2148 = (2^-1074)^2, products end
// below 2^2048; digits of 32 bits in 64-bit cells, so that 2^30 additions need no carry.
class Superaccumulator {
 public:
  void clear() {
    std::memset(cell_, 0, sizeof cell_);
    pending_ = 0;
  }

  // (-1)^negative ma mb 2^(ea + eb), ma, mb < 2^53, exponents >= -1074.
  void add(uint64_t ma, uint64_t mb, int ea, int eb, bool negative) {
    const UInt128 product = static_cast<UInt128>(ma) * mb;
    const int position = ea + eb + 2148, index = position >> 5, shift = position & 31;
    const UInt128 low = static_cast<UInt128>(static_cast<uint64_t>(product)) << shift;
    const UInt128 high = static_cast<UInt128>(static_cast<uint64_t>(product >> 64)) << shift;
    int64_t* c = cell_ + index;
    const int64_t d[5] = {digit(low, 0), digit(low, 32), digit(low, 64) + digit(high, 0), digit(high, 32),
                          digit(high, 64)};
    const int64_t sign = negative ? -1 : 1;
    for (int i = 0; i < 5; ++i) c[i] += sign * d[i];
    if (++pending_ == (1 << 29)) carry();
  }

  template <class Float>
  Float round() {
    uint64_t words[kCells / 2];
    to_words(words);
    return round_words<Float>(words, kCells / 2, -2148);
  }

  Pair round_to_pair() {
    uint64_t words[kCells / 2];
    to_words(words);
    return round_pair(words, kCells / 2, -2148);
  }

 private:
  // 4,196 bits of products, 64 of carries, in pairs of digits.
  static constexpr int kCells = 136;

  void to_words(uint64_t* words) {
    carry();
    for (int i = 0; i < kCells / 2; ++i)
      words[i] = static_cast<uint64_t>(cell_[2 * i]) | static_cast<uint64_t>(cell_[2 * i + 1]) << 32;
  }

  static int64_t digit(UInt128 v, int shift) { return static_cast<int64_t>(static_cast<uint32_t>(v >> shift)); }

  // Every cell but the last becomes a digit in [0, 2^32): the whole is two's complement.
  void carry() {
    int64_t c = 0;
    for (int64_t& cell : cell_) {
      const int64_t t = cell + c;
      c = t >> 32;
      cell = t & 0xffffffff;
    }
    // The last digit's sign is that of the whole: kept as the sign extension of the top cell.
    if (c < 0) cell_[kCells - 1] |= static_cast<int64_t>(static_cast<uint64_t>(c) << 32);
    pending_ = 0;
  }

  int64_t cell_[kCells];
  int pending_ = 0;
};

struct Decoded {
  uint64_t mantissa;
  int exponent;
  bool negative;
};

inline Decoded decode(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (field == 0) return {fraction, -1074, static_cast<bool>(bits >> 63)};
  return {fraction | uint64_t{1} << 52, field - 1075, static_cast<bool>(bits >> 63)};
}

template <class T>
bool all_negative_zero(const T* x, int64_t sx, const T* y, int64_t sy, int64_t k) {
  for (int64_t p = 0; p < k; ++p) {
    const T u = x[p * sx], v = y[p * sy];
    if (std::signbit(u) == std::signbit(v) || (u != T{} && v != T{})) return false;
  }
  return k > 0;
}

// Vectors side by side along k, and a bit for each finite nonzero entry: an element of a sparse product meets few.
template <class T>
class Vectors {
 public:
  Vectors(const View& x, int threads, const Poll& poll)
      : depth_(x.depth), words_((x.depth + 63) / 64), stride_(x.stride_v), data_(static_cast<const T*>(x.data)) {
    if (x.stride_k != 1) {
      copy_.resize(static_cast<size_t>(x.vectors * x.depth));
      stride_ = x.depth;
    }
    mask_.assign(static_cast<size_t>(x.vectors * words_), 0);
    const double ns = 2.0 * static_cast<double>(x.vectors) * static_cast<double>(x.depth);
    parallel_for((x.vectors + 63) / 64, useful_threads(ns, threads), poll, [&](int64_t block) {
      const int64_t v0 = block * 64, v1 = std::min(x.vectors, v0 + 64);
      if (x.stride_k != 1)
        for (int64_t p = 0; p < x.depth; ++p)
          for (int64_t v = v0; v < v1; ++v)
            copy_[static_cast<size_t>(v * x.depth + p)] = data_[v * x.stride_v + p * x.stride_k];
      for (int64_t v = v0; v < v1; ++v)
        for (int64_t p = 0; p < x.depth; ++p) {
          const T value = vector(v)[p];
          mask_[static_cast<size_t>(v * words_ + p / 64)] |=
              static_cast<uint64_t>(value != T{} && std::isfinite(value)) << (p % 64);
        }
    });
  }

  const T* vector(int64_t v) const { return (copy_.empty() ? data_ : copy_.data()) + v * stride_; }
  const uint64_t* mask(int64_t v) const { return mask_.data() + v * words_; }

 private:
  int64_t depth_, words_, stride_;
  const T* data_;
  std::vector<T> copy_;
  std::vector<uint64_t> mask_;
};

// One vector at a time, for few elements: nothing of the size of a matrix is copied.
template <class T>
class OneVector {
 public:
  explicit OneVector(const View& x)
      : x_(x), copy_(static_cast<size_t>(x.depth)), mask_(static_cast<size_t>((x.depth + 63) / 64)) {}

  const T* vector(int64_t v) {
    load(v);
    return copy_.data();
  }
  const uint64_t* mask(int64_t v) {
    load(v);
    return mask_.data();
  }

 private:
  void load(int64_t v) {
    if (v == held_) return;
    held_ = v;
    std::fill(mask_.begin(), mask_.end(), 0);
    const T* data = static_cast<const T*>(x_.data) + v * x_.stride_v;
    for (int64_t p = 0; p < x_.depth; ++p) {
      const T value = data[p * x_.stride_k];
      copy_[static_cast<size_t>(p)] = value;
      mask_[static_cast<size_t>(p / 64)] |= static_cast<uint64_t>(value != T{} && std::isfinite(value)) << (p % 64);
    }
  }

  const View& x_;
  std::vector<T> copy_;
  std::vector<uint64_t> mask_;
  int64_t held_ = -1;
};

// The elements index[first, last) from rows and columns that give vector(v) and mask(v).
template <class T, class Rows, class Columns>
void dot_elements(Rows& rows, Columns& columns, int64_t k, const Index* index, int64_t first, int64_t last,
                  const Target& target) {
  Superaccumulator sum;
  for (int64_t e = first; e < last; ++e) {
    const auto [i, j] = index[e];
    const T *x = rows.vector(i), *y = columns.vector(j);
    const uint64_t *mx = rows.mask(i), *my = columns.mask(j);
    bool empty = true;
    for (int64_t w = 0; w < (k + 63) / 64; ++w) {
      if (w % 4096 == 0) Loop::checkpoint();
      for (uint64_t common = mx[w] & my[w]; common; common &= common - 1) {
        if (empty) sum.clear();
        empty = false;
        const int64_t p = 64 * w + std::countr_zero(common);
        const Decoded u = decode(static_cast<double>(x[p])), v = decode(static_cast<double>(y[p]));
        sum.add(u.mantissa, v.mantissa, u.exponent, v.exponent, u.negative != v.negative);
      }
    }
    if (target.kind == Out::pair) {
      const Pair value = empty ? Pair{0.0, 0.0} : sum.round_to_pair();
      static_cast<double*>(target.data)[i * target.stride_i + j * target.stride_j] = value.high;
      target.low[i * target.low_stride_i + j * target.low_stride_j] = value.low;
      continue;
    }
    const bool negative = empty && all_negative_zero(x, 1, y, 1, k);
    dispatch_result(target.kind, [&]<class R>(R) {
      const R value = empty ? R{} : sum.round<R>();
      static_cast<R*>(target.data)[i * target.stride_i + j * target.stride_j] = negative ? -value : value;
    });
  }
}

}  // namespace

void exact_dots(const View& a, const View& b, const Index* index, int64_t count, const Target& target, int threads,
                const Poll& poll) {
  constexpr int64_t kChunk = 64;
  if (count == 0) return;
  const double ns = 5.0 * static_cast<double>(count) * static_cast<double>(a.depth);
  const auto chunks = [&](const auto& body) {
    parallel_for((count + kChunk - 1) / kChunk, useful_threads(ns, threads), poll, [&](int64_t chunk) {
      body(chunk * kChunk, std::min(count, (chunk + 1) * kChunk));
    });
  };
  dispatch_float(a.type, [&]<class T>(T) {
    if (count < 4 * (a.vectors + b.vectors)) {
      chunks([&](int64_t first, int64_t last) {
        OneVector<T> row(a), column(b);
        dot_elements<T>(row, column, a.depth, index, first, last, target);
      });
    } else {
      const Vectors<T> rows(a, threads, poll), columns(b, threads, poll);
      chunks([&](int64_t first, int64_t last) {
        dot_elements<T>(rows, columns, a.depth, index, first, last, target);
      });
    }
  });
}

void fix_negative_zeros(const View& a, const View& b, const Target& target, int threads, const Poll& poll) {
  dispatch_float(a.type, [&]<class T>(T) {
    const T* pa = static_cast<const T*>(a.data);
    const T* pb = static_cast<const T*>(b.data);
    const double ns = 3.0 * static_cast<double>(a.vectors) * static_cast<double>(b.vectors);
    parallel_for(a.vectors, useful_threads(ns, threads), poll, [&](int64_t i) {
      dispatch_result(target.kind, [&]<class R>(R) {
        using std::signbit;
        R* row = static_cast<R*>(target.data) + i * target.stride_i;
        for (int64_t j = 0; j < b.vectors; ++j) {
          R& c = row[j * target.stride_j];
          if (c == R{} && !signbit(c) &&
              all_negative_zero(pa + i * a.stride_v, a.stride_k, pb + j * b.stride_v, b.stride_k, a.depth))
            c = -R{};
        }
      });
    });
  });
}

}  // namespace gemmulate
