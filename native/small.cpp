#include "small.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "dispatch.hpp"
#include "exactdot.hpp"
#include "modulo.hpp"

namespace gemmulate {
namespace {

constexpr int64_t kMostCells = int64_t{1} << 15;  // of one matrix, padding included: 256 KiB

int64_t padded(int64_t n, int64_t width) { return (n + width - 1) / width * width; }

// Memory of one product, kept by each thread for the next one.
class Arena {
 public:
  explicit Arena(int64_t words) {
    thread_local AlignedBytes memory;
    if (memory.size() < static_cast<size_t>(words) * 8) memory = AlignedBytes(static_cast<size_t>(words) * 8);
    next_ = memory.get();
  }
  // Room for `count` elements of at most eight bytes, on a cache line of its own.
  template <class T>
  T* take(int64_t count) {
    T* const p = reinterpret_cast<T*>(next_);
    next_ += padded(count * static_cast<int64_t>(sizeof(T)), 64);
    return p;
  }

 private:
  uint8_t* next_;
};

// rows x depth times depth x columns, padded.
struct Shape {
  int64_t m, n, depth, rows, columns;

  Shape(const View& a, const View& b, int64_t lanes)
      : m(a.vectors), n(b.vectors), depth(a.depth), rows(padded(m, kSmallTileRows)), columns(padded(n, lanes)) {}
  bool small() const {
    // In this order no product overflows.
    return depth > 0 && rows <= kMostCells && columns <= kMostCells && depth <= kMostCells &&
           rows * (depth + 1) <= kMostCells && (depth + 1) * columns <= kMostCells && rows * columns <= kMostCells;
  }
};

// out[v][p] = x_vp, rows of zeros up to `rows`; `depth` >= x.depth is the length of a row.
template <class S, class T>
void copy_rows(const View& x, int64_t rows, int64_t depth, T* out) {
  const S* in = static_cast<const S*>(x.data);
  for (int64_t v = 0; v < x.vectors; ++v, in += x.stride_v) {
    T* const row = out + v * depth;
    if (x.stride_k == 1)
      for (int64_t p = 0; p < x.depth; ++p) row[p] = static_cast<T>(in[p]);
    else
      for (int64_t p = 0; p < x.depth; ++p) row[p] = static_cast<T>(in[p * x.stride_k]);
    for (int64_t p = x.depth; p < depth; ++p) row[p] = T{};
  }
  std::fill(out + x.vectors * depth, out + rows * depth, T{});
}

// out[p][v] = x_vp, columns of zeros up to `columns`.
template <class S, class T>
void copy_columns(const View& x, int64_t columns, T* out) {
  const S* in = static_cast<const S*>(x.data);
  for (int64_t p = 0; p < x.depth; ++p, in += x.stride_k) {
    T* const row = out + p * columns;
    if (x.stride_v == 1)
      for (int64_t v = 0; v < x.vectors; ++v) row[v] = static_cast<T>(in[v]);
    else
      for (int64_t v = 0; v < x.vectors; ++v) row[v] = static_cast<T>(in[v * x.stride_v]);
    for (int64_t v = x.vectors; v < columns; ++v) row[v] = T{};
  }
}

// out[p / 2][v][p % 2] = x_vp for an even number of steps.
template <class S>
void copy_pairs(const View& x, int64_t columns, int64_t pairs, int16_t* out) {
  const S* in = static_cast<const S*>(x.data);
  std::fill(out, out + 2 * pairs * columns, int16_t{});
  for (int64_t q = 0; q < pairs; ++q, out += 2 * columns) {
    const S *first = in + 2 * q * x.stride_k, *second = first + x.stride_k;
    const bool whole = 2 * q + 1 < x.depth;
    if (x.stride_v == 1 && whole)
      for (int64_t v = 0; v < x.vectors; ++v) {
        out[2 * v] = static_cast<int16_t>(first[v]);
        out[2 * v + 1] = static_cast<int16_t>(second[v]);
      }
    else
      for (int64_t v = 0; v < x.vectors; ++v) {
        out[2 * v] = static_cast<int16_t>(first[v * x.stride_v]);
        if (whole) out[2 * v + 1] = static_cast<int16_t>(second[v * x.stride_v]);
      }
  }
}

template <class Float>
bool multiply_floats(const Isa& isa, const View& a, const View& b, const Target& target, const Poll& poll) {
  const SmallKernels& run = isa.small;
  const Shape s(a, b, run.lanes);
  if (!s.small() || run.f64 == nullptr) return false;
  const int64_t cells = s.rows * s.columns, left = s.rows * s.depth, right = s.depth * s.columns;
  Arena arena(left + right + s.rows + s.columns + 2 * cells + 6 * 8);
  const double *x = static_cast<const double*>(a.data), *y = static_cast<const double*>(b.data);
  double *row = arena.take<double>(s.rows), *column = arena.take<double>(s.columns);
  Float* sums = arena.take<Float>(cells);
  uint8_t* open = arena.take<uint8_t>(cells);
  // Read where they lie, if they lie as a copy would.
  if (sizeof(Float) == 4 || s.m != s.rows || a.stride_k != 1 || a.stride_v != s.depth || left % run.lanes) {
    double* const copy = arena.take<double>(left);
    copy_rows<Float>(a, s.rows, s.depth, copy);
    std::fill(copy + left, copy + padded(left, run.lanes), 0.0);
    x = copy;
  }
  if (sizeof(Float) == 4 || s.n != s.columns || b.stride_v != 1 || b.stride_k != s.columns) {
    double* const copy = arena.take<double>(right);
    copy_columns<Float>(b, s.columns, copy);
    y = copy;
  }
  if (!run.row_norms(s.rows, s.depth, x, row) || !run.column_norms(s.depth, s.columns, y, column)) return false;
  const bool in_place = target.stride_j == 1 && s.m == s.rows && s.n == s.columns;
  Float* const out = in_place ? static_cast<Float*>(target.data) : sums;
  const SmallShape shape{s.rows, s.columns, s.depth, in_place ? target.stride_i : s.columns};
  // Entries of at most 26 bits below the largest norms: every sum is exact in float64.
  const double high_a = *std::max_element(row, row + s.m), high_b = *std::max_element(column, column + s.n);
  const bool exact = run.multiples(right, y, 0x1.8p26 * high_b) && run.multiples(left, x, 0x1.8p26 * high_a);
  const bool zero_vector = std::count(row, row + s.m, 0.0) + std::count(column, column + s.n, 0.0) > 0;
  const double k = static_cast<double>(s.depth);
  uint64_t any;
  if constexpr (sizeof(Float) == 4) {
    // k roundings of sums below row column, and that of the sum plus or minus e.
    const double unit = exact ? 0.0 : (k + 4.0) * 0x1p-53;
    for (int64_t i = 0; i < s.rows; ++i) row[i] *= unit;
    any = run.f32(shape, x, y, row, column, out, open);
  } else if (exact) {
    run.plain(shape, x, y, out);
    any = 0;
  } else {
    // Sum of the rests: off by 2^-54 g k^2, g = 2^(p - 52) = 2^-51 row column; as much again for the rounding of
    // tail +- e, |tail| <= k g / 2.
    any = run.f64(shape, x, y, row, column, k * k * (1.0 + 0x1p-20) * 0x1p-104, out, open);
  }
  std::vector<Index> uncertain;
  if (any) {
    const int64_t groups = s.columns / run.lanes, limit = s.m * s.n / 16 + 4;
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t g = 0; g < groups; ++g)
        for (unsigned mask = open[i * groups + g]; mask; mask &= mask - 1)
          if (const int64_t j = g * run.lanes + std::countr_zero(mask); j < s.n) uncertain.push_back({i, j});
    if (static_cast<int64_t>(uncertain.size()) > limit) return false;
  }
  if (!in_place)
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j)
        static_cast<Float*>(target.data)[i * target.stride_i + j * target.stride_j] = sums[i * s.columns + j];
  if (exact || zero_vector) fix_negative_zeros(a, b, target, 1, poll);
  exact_dots(a, b, uncertain.data(), static_cast<int64_t>(uncertain.size()), target, 1, poll);
  return true;
}

int type_bits(Type type) { return 8 * item_bytes(type) - !is_unsigned(type); }

// Least b with |x| <= 2^b.
int bits_of(const int16_t* x, int64_t n) {
  int ones = 0;
  for (int64_t i = 0; i < n; ++i) ones |= x[i] ^ (x[i] >> 15);
  return bit_length(static_cast<uint64_t>(ones));
}

// One operand as 64-bit words, where they lie if they lie as a copy would.
struct Side {
  const uint64_t* words;
  uint64_t* room;  // for a copy
  int64_t count;
  bool without_sign;
  int bits;

  void measure(const SmallKernels& run) { bits = run.bits(padded(count, run.lanes), words, without_sign); }
  void centre(const SmallKernels& run, uint64_t p) {
    if (words != room) std::copy(words, words + count, room);
    words = room;
    if (!run.centre(padded(count, run.lanes), room, p)) {
      const Modulo modulo(p);
      for (int64_t i = 0; i < count; ++i)
        room[i] = static_cast<uint64_t>(
            modulo.centred(without_sign ? modulo(room[i]) : modulo.of_signed(static_cast<int64_t>(room[i]))));
    }
    without_sign = false;
    bits = std::min(bits, bit_length(p / 2));
  }
};

Side left_side(const View& a, const Shape& s, int64_t lanes, Arena& arena) {
  const int64_t count = s.rows * s.depth;
  uint64_t* const room = arena.take<uint64_t>(count);
  Side side{static_cast<const uint64_t*>(a.data), room, count, is_unsigned(a.type), type_bits(a.type)};
  if (side.bits >= 63 && s.m == s.rows && a.stride_k == 1 && a.stride_v == s.depth && count % lanes == 0) return side;
  dispatch_integer(a.type, [&]<class S>(S) { copy_rows<S>(a, s.rows, s.depth, room); });
  std::fill(room + count, room + padded(count, lanes), uint64_t{0});
  side.words = room;
  return side;
}

Side right_side(const View& b, const Shape& s, Arena& arena) {
  const int64_t count = s.depth * s.columns;
  uint64_t* const room = arena.take<uint64_t>(count);
  Side side{static_cast<const uint64_t*>(b.data), room, count, is_unsigned(b.type), type_bits(b.type)};
  if (side.bits >= 63 && s.n == s.columns && b.stride_v == 1 && b.stride_k == s.columns) return side;
  dispatch_integer(b.type, [&]<class S>(S) { copy_columns<S>(b, s.columns, room); });
  side.words = room;
  return side;
}

void store(const uint64_t* sums, const Shape& s, const IntegerTarget& target) {
  dispatch_integer(target.type, [&]<class T>(T) {
    T* const out = static_cast<T*>(target.data);
    for (int64_t i = 0; i < s.m; ++i) {
      const uint64_t* from = sums + i * s.columns;
      T* const to = out + i * target.stride_i;
      if (target.stride_j == 1)
        for (int64_t j = 0; j < s.n; ++j) to[j] = static_cast<T>(from[j]);
      else
        for (int64_t j = 0; j < s.n; ++j) to[j * target.stride_j] = static_cast<T>(from[j]);
    }
  });
}

bool in_place(const Shape& s, const IntegerTarget& target) {
  return type_bits(target.type) >= 63 && s.m == s.rows && s.n == s.columns && target.stride_j == 1 &&
         target.stride_i == s.columns;
}

// Entries of int16 whose sums fit int32; false where they do not.
bool multiply_shorts(const Isa& isa, const View& a, const View& b, const IntegerTarget& target, uint64_t modulus) {
  const SmallKernels& run = isa.small;
  const Shape s(a, b, 2 * run.lanes);
  if (!s.small()) return false;
  const int64_t pairs = (s.depth + 1) / 2, cells = s.rows * s.columns;
  Arena arena(cells + (s.rows + s.columns) * pairs + 3 * 8);
  uint64_t* sums = arena.take<uint64_t>(cells);
  int16_t *x = arena.take<int16_t>(s.rows * 2 * pairs), *y = arena.take<int16_t>(s.columns * 2 * pairs);
  dispatch_integer(a.type, [&]<class S>(S) { copy_rows<S>(a, s.rows, 2 * pairs, x); });
  dispatch_integer(b.type, [&]<class S>(S) { copy_pairs<S>(b, s.columns, pairs, y); });
  const int depth_bits = bit_length(static_cast<uint64_t>(s.depth - 1));
  if (type_bits(a.type) + type_bits(b.type) + depth_bits > 30 &&
      bits_of(x, s.rows * 2 * pairs) + bits_of(y, s.columns * 2 * pairs) + depth_bits > 30)
    return false;
  uint64_t* const out = in_place(s, target) ? static_cast<uint64_t*>(target.data) : sums;
  run.shorts({s.rows, s.columns, pairs, s.columns}, x, y, out);
  if (modulus) run.modulo(cells, out, nullptr, modulus);
  if (out == sums) store(sums, s, target);
  return true;
}

}  // namespace

bool small_float_product(const Isa& isa, const View& a, const View& b, const Target& target, const Poll& poll) {
  const FloatEnvironment environment;
  return a.type == Type::f64 ? multiply_floats<double>(isa, a, b, target, poll)
                             : multiply_floats<float>(isa, a, b, target, poll);
}

bool small_integer_product(const Isa& isa, const View& a, const View& b, const IntegerTarget& target, uint64_t modulus,
                           bool wrap) {
  const FloatEnvironment environment;
  const SmallKernels& run = isa.small;
  if (modulus > uint64_t{1} << 62) return false;  // twice the modulus is to fit int64
  if (type_bits(a.type) <= 15 && type_bits(b.type) <= 15 && multiply_shorts(isa, a, b, target, modulus)) return true;
  const Shape s(a, b, run.lanes);
  if (!s.small()) return false;
  const int64_t cells = s.rows * s.columns, left = s.rows * s.depth, right = s.depth * s.columns;
  Arena arena(3 * cells + 2 * left + 3 * right + 8 * 8);
  uint64_t* sums = arena.take<uint64_t>(cells);
  Side x = left_side(a, s, run.lanes, arena), y = right_side(b, s, arena);
  uint64_t* const out = in_place(s, target) ? static_cast<uint64_t*>(target.data) : sums;
  const SmallShape shape{s.rows, s.columns, s.depth, s.columns};
  // |results| <= depth 2^(x.bits + y.bits); below 2^64 without signs.
  const int depth_bits = bit_length(static_cast<uint64_t>(s.depth - 1));
  const int most = x.without_sign && y.without_sign && target.type == Type::u64 ? 64 : 62;
  const auto fits = [&] { return x.bits + y.bits + depth_bits <= most; };
  // Error of the sums in float64: three roundings of a term, one for each addition.
  const double k = static_cast<double>(s.depth);
  const auto error = [&](int bits) { return k * (k + 4.0) * std::ldexp(1.0, bits - 53); };
  const auto halves = [&] { return x.bits <= 31 && y.bits <= 31; };
  if (!wrap && !fits()) {
    x.measure(run);
    y.measure(run);
  }
  if (modulus && !fits()) {
    // Entries of about the modulus's size are small enough as they are where it is of a middle size (Isa's modulo).
    const int size = bit_length(modulus);
    const bool leave = size > 12 && size <= 40 && std::max(x.bits, y.bits) <= size;
    if (!leave || error(x.bits + y.bits) > 0x1p61) {
      x.centre(run, modulus);
      y.centre(run, modulus);
    }
  }
  if (wrap || fits()) {
    (halves() ? run.half : run.wide)(shape, x.words, y.words, out);
    if (modulus) run.modulo(cells, out, nullptr, modulus);
  } else if (error(x.bits + y.bits) <= 0x1p61) {
    // The sums in float64 tell which multiple of 2^64 (or of the modulus) it is.
    double *u = arena.take<double>(left), *v = arena.take<double>(right), *value = arena.take<double>(cells);
    run.doubles(padded(left, run.lanes), x.words, x.without_sign, u);
    run.doubles(right, y.words, y.without_sign, v);
    run.both(shape, halves(), x.words, y.words, u, v, out, value);
    if (modulus) {
      run.modulo(cells, out, value, modulus);
    } else {
      const double limit = most == 64 ? 0x1p64 - 0x1p61 : 0x1p63 - 0x1p61;
      if (!std::all_of(value, value + cells, [&](double r) { return std::fabs(r) < limit; })) return false;
    }
  } else if (modulus && error(x.bits + 32) <= 0x1p60) {
    // y = 2^32 high + low: the residues of x high, then of 2^32 times these plus x low.
    double *u = arena.take<double>(left), *v = arena.take<double>(right), *value = arena.take<double>(cells);
    uint64_t *high = arena.take<uint64_t>(cells), *part = arena.take<uint64_t>(right);
    run.doubles(padded(left, run.lanes), x.words, false, u);
    for (int64_t i = 0; i < right; ++i) part[i] = static_cast<uint64_t>(static_cast<int64_t>(y.words[i]) >> 32);
    run.doubles(right, part, false, v);
    run.both(shape, false, x.words, part, u, v, high, value);
    run.modulo(cells, high, value, modulus);
    for (int64_t i = 0; i < right; ++i) part[i] = y.words[i] & 0xffffffff;
    run.doubles(right, part, false, v);
    run.both(shape, false, x.words, part, u, v, out, value);
    for (int64_t i = 0; i < cells; ++i) {
      value[i] += 0x1p32 * static_cast<double>(high[i]);
      out[i] += high[i] << 32;
    }
    run.modulo(cells, out, value, modulus);
  } else {
    return false;
  }
  if (out == sums) store(sums, s, target);
  return true;
}

}  // namespace gemmulate
