#include "operand.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <type_traits>

#include "centre.hpp"
#include "dispatch.hpp"
#include "scaling.hpp"

namespace gemmulate {

namespace {

// Freed buffers that are kept for the next product: the kernel clears every page that it hands out, which took a
// quarter of the time of a 2048^3 product (EPYC Zen 5, 2026-11-29). At most kKept bytes stay with the process.
class BufferPool {
 public:
  static BufferPool& instance() {
    static BufferPool* const pool = [] {
      // A child forked while another thread holds the lock would wait for it forever.
      const auto release = [] { instance().lock_.unlock(); };
      pthread_atfork([] { instance().lock_.lock(); }, release, release);
      return new BufferPool;  // never destroyed: operands may outlive static destruction
    }();
    return *pool;
  }

  uint8_t* take(size_t bytes) {
    const std::lock_guard guard(lock_);
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->bytes == bytes) {
        uint8_t* p = it->data;
        held_ -= bytes;
        free_.erase(it);
        return p;
      }
    return nullptr;
  }

  void give(uint8_t* data, size_t bytes) {
    {
      const std::lock_guard guard(lock_);
      if (bytes <= kKept) {
        while (held_ + bytes > kKept) {  // the oldest go first
          std::free(free_.front().data);
          held_ -= free_.front().bytes;
          free_.pop_front();
        }
        free_.push_back({data, bytes});
        held_ += bytes;
        return;
      }
    }
    std::free(data);
  }

 private:
  static constexpr size_t kKept = size_t{128} << 20;
  struct Block {
    uint8_t* data;
    size_t bytes;
  };
  std::mutex lock_;
  std::deque<Block> free_;
  size_t held_ = 0;
};

constexpr size_t kHugePage = size_t{1} << 21;

}  // namespace

AlignedBytes::AlignedBytes(size_t bytes) : size_(bytes) {
  // Two-megabyte pages where the buffer fills half of one: page faults of 4 KiB cost more than the conversion itself.
  const size_t align = bytes >= kHugePage / 2 ? kHugePage : 64;
  const size_t rounded = std::max(align, (bytes + align - 1) / align * align);
  uint8_t* p = align == kHugePage ? BufferPool::instance().take(rounded) : nullptr;
  if (!p) {
    p = static_cast<uint8_t*>(std::aligned_alloc(align, rounded));
    if (!p) throw std::bad_alloc();
    if (align == kHugePage) madvise(p, rounded, MADV_HUGEPAGE);
  }
  data_ = {p, Free{rounded}};
}

void AlignedBytes::Free::operator()(uint8_t* p) const {
  if (bytes >= kHugePage)
    BufferPool::instance().give(p, bytes);
  else
    std::free(p);
}

Operand make_operand(const Isa& isa, bool left, int planes, int64_t vectors, int64_t depth, bool halved) {
  Operand o;
  o.isa = &isa;
  o.left = left;
  o.planes = planes;
  o.width = left ? isa.mr : isa.nr;
  o.vectors = vectors;
  o.depth = depth;
  o.halved = halved;
  o.k4 = halved ? (depth + 7) / 8 : (depth + 3) / 4;
  o.span = halved ? (vectors + 2 * o.width - 1) / (2 * o.width) * o.width : vectors;
  const auto cells = static_cast<unsigned __int128>(o.panels()) * planes * o.factors() * o.plane_bytes();
  if (cells > static_cast<unsigned __int128>(std::numeric_limits<int64_t>::max() / 2)) throw std::bad_alloc();
  o.bytes = AlignedBytes(static_cast<size_t>(cells));
  return o;
}

namespace {

// Depth of one packing block: its digits stay in the second-level cache for all moduli.
constexpr int64_t kBlockDepth = 64;

// a + b and a - b of residues in [low, low + m).
template <class T>
void add_residues(const T* a, const T* b, int64_t n, int m, int low, T* out) {
  for (int64_t i = 0; i < n; ++i) {
    const auto s = static_cast<int16_t>(a[i] + b[i]);
    out[i] = static_cast<T>(s + (s < low ? m : 0) - (s >= low + m ? m : 0));
  }
}
template <class T>
void subtract_residues(const T* a, const T* b, int64_t n, int m, int low, T* out) {
  for (int64_t i = 0; i < n; ++i) {
    const auto s = static_cast<int16_t>(a[i] - b[i]);
    out[i] = static_cast<T>(s + (s < low ? m : 0) - (s >= low + m ? m : 0));
  }
}

// Where `write_residues` puts the quadrants [half of the vectors][half of the depth]: those that are factors in their
// places, A21 in that of S1 and B12 in that of T1.
constexpr int kQuadrantOfA[2][2] = {{0, 1}, {4, 3}}, kQuadrantOfB[2][2] = {{0, 1}, {4, 2}};

// The factors of one panel from its quadrants.
void combine_factors(const Operand& o, int64_t panel) {
  const auto n = static_cast<int64_t>(o.plane_bytes());
  for (int l = 0; l < o.planes; ++l) {
    const int m = o.moduli[static_cast<size_t>(l)];
    const auto at = [&](int factor) { return const_cast<uint8_t*>(o.plane(panel, kFactors * l + factor)); };
    if (o.left) {
      uint8_t *a11 = at(0), *a12 = at(1), *s4 = at(2), *a22 = at(3), *s1 = at(4), *s2 = at(5), *s3 = at(6);
      subtract_residues(a11, s1, n, m, 0, s3);  // A11 - A21
      add_residues(s1, a22, n, m, 0, s1);
      subtract_residues(s1, a11, n, m, 0, s2);
      subtract_residues(a12, s2, n, m, 0, s4);
    } else {
      const auto signed_at = [&](int factor) { return reinterpret_cast<int8_t*>(at(factor)); };
      int8_t *b11 = signed_at(0), *b21 = signed_at(1), *b22 = signed_at(2), *minus_t4 = signed_at(3),
             *t1 = signed_at(4), *t2 = signed_at(5), *t3 = signed_at(6);
      const int low = -(m / 2);
      subtract_residues(b22, t1, n, m, low, t3);  // B22 - B12
      subtract_residues(t1, b11, n, m, low, t1);
      subtract_residues(b22, t1, n, m, low, t2);
      subtract_residues(b21, t2, n, m, low, minus_t4);
    }
  }
}

// Runs body(panel, p0, block, scratch) over all blocks of all panels; a task is one panel. Of a halved operand the
// panels of the other half of the vectors follow those of the first.
template <class Body>
void for_blocks(const Operand& o, int threads, const Poll& poll, const Body& body) {
  // About 1 ns to read and cut an entry, 0.15 ns for each residue.
  const double ns = static_cast<double>(o.vectors) * static_cast<double>(o.depth) * (1.0 + 0.15 * o.planes);
  parallel_for(o.panels(), useful_threads(ns, threads), poll, [&](int64_t panel) {
    for (int64_t half = 0; half < (o.halved ? 2 : 1); ++half)
      for (int64_t first = 0; first < (o.halved ? 8 : 4) * o.k4; first += 4 * o.k4)
        for (int64_t p = 0; p < o.k4 * 4; p += kBlockDepth) {
          if (p % (kBlockDepth * 256) == 0) Loop::checkpoint();
          body(panel + half * o.panels(), first + p, std::min(kBlockDepth, o.k4 * 4 - p));
        }
    if (o.halved) combine_factors(o, panel);
  });
}

// Copies a block into panel order [p/4][v][p%4] through `convert`; zero outside the matrix.
template <class T, class U, class Convert>
void gather(const View& x, int64_t v0, int width, int64_t p0, int64_t block, U* out, const Convert& convert) {
  const T* base = static_cast<const T*>(x.data);
  const int64_t nv = std::min<int64_t>(width, x.vectors - v0), np = std::min(block, x.depth - p0);
  if (nv < width || np < block) std::fill(out, out + width * block, U{});
  int64_t p = 0;
  for (; p + 4 <= np; p += 4) {
    const T* src = base + v0 * x.stride_v + (p0 + p) * x.stride_k;
    U* dst = out + p * width;
    for (int64_t v = 0; v < nv; ++v)
      for (int64_t e = 0; e < 4; ++e) dst[4 * v + e] = convert(src[v * x.stride_v + e * x.stride_k]);
  }
  for (; p < np; ++p) {
    const T* src = base + v0 * x.stride_v + (p0 + p) * x.stride_k;
    U* dst = out + (p / 4) * width * 4 + p % 4;
    for (int64_t v = 0; v < nv; ++v) dst[4 * v] = convert(src[v * x.stride_v]);
  }
}

// `pieces` become words.
void write_residues(Operand& o, int64_t panel, int64_t p0, int64_t n, int32_t* pieces, const ModuliTable& t) {
  o.isa->residues.words_of_pieces(pieces, n * t.words);
  const int64_t half = panel / o.panels(), second = p0 / (4 * o.k4);
  const int quadrant = (o.left ? kQuadrantOfA : kQuadrantOfB)[half][second];
  for (int l = 0; l < t.moduli; ++l) {
    const int plane = o.halved ? kFactors * l + quadrant : l;
    uint8_t* out = const_cast<uint8_t*>(o.plane(panel % o.panels(), plane)) + p0 % (4 * o.k4) * o.width;
    const int32_t* coef = t.coef.data() + static_cast<size_t>(l) * t.words;
    (o.left ? o.isa->residues.left : o.isa->residues.right)(pieces, n, t.words, coef, t.modulus[l], out);
  }
}

// 2^h as a double for |h| <= 1022, by its bits.
void fill_scales(const Operand& o, const int32_t* shift, const int32_t* inner, int64_t v0, int64_t p0,
                 int64_t block, double* f1, double* f2) {
  const int64_t nv = std::min<int64_t>(o.width, o.vectors - v0);
  for (int64_t p = 0; p < block; ++p)
    for (int64_t v = 0; v < o.width; ++v) {
      const int64_t i = (p / 4) * o.width * 4 + 4 * v + p % 4;
      if (v < nv && p0 + p < o.depth)
        split_scale(shift[v0 + v] + (inner ? inner[p0 + p] : 0), f1[i], f2[i]);
      else
        f1[i] = f2[i] = 0.0;
    }
}

}  // namespace

Operand pack_floats(const Isa& isa, bool left, const View& x, const int32_t* shift, const int32_t* inner,
                    const ModuliTable& table, bool count_inexact, int threads, const Poll& poll) {
  Operand o = make_operand(isa, left, table.moduli, x.vectors, x.depth, table.halved);
  for (const Modulus& m : table.modulus) o.moduli.push_back(static_cast<int>(m.m));
  if (count_inexact) o.inexact.assign(static_cast<size_t>(x.vectors), 0);
  const int64_t cells = kBlockDepth * o.width;
  for_blocks(o, threads, poll, [&](int64_t panel, int64_t p0, int64_t block) {
    thread_local std::vector<double> buffer;
    thread_local std::vector<int32_t> pieces;
    thread_local std::vector<uint8_t> inexact;
    const int64_t v0 = panel * o.width, n = block * o.width;
    buffer.resize(static_cast<size_t>(3 * cells));
    pieces.resize(static_cast<size_t>(cells * table.words) + kPastEnd / sizeof(int32_t));
    inexact.resize(static_cast<size_t>(cells));
    double *value = buffer.data(), *f1 = value + cells, *f2 = f1 + cells;
    dispatch_float(x.type, [&]<class T>(T) {
      gather<T>(x, v0, o.width, p0, block, value, [](T e) { return finite_or_zero(static_cast<double>(e)); });
    });
    // Without an inner scaling the factors depend on the vector alone: one filling for each panel.
    if (inner || p0 == 0) fill_scales(o, shift, inner, v0, p0, inner ? block : std::min(kBlockDepth, o.k4 * 4), f1, f2);
    isa.residues.pieces_f64(value, f1, f2, n, table.words, pieces.data(), count_inexact ? inexact.data() : nullptr);
    if (count_inexact)
      for (int64_t v = 0; v < std::min<int64_t>(o.width, o.vectors - v0); ++v)
        for (int64_t p = 0; p < block; ++p)
          o.inexact[static_cast<size_t>(v0 + v)] += inexact[static_cast<size_t>((p / 4) * o.width * 4 + 4 * v + p % 4)];
    write_residues(o, panel, p0, n, pieces.data(), table);
  });
  return o;
}

Operand pack_pairs(const Isa& isa, bool left, const View& high, const View& low, const int32_t* shift,
                   const int32_t* inner, const ModuliTable& table, int threads, const Poll& poll) {
  Operand o = make_operand(isa, left, table.moduli, high.vectors, high.depth, table.halved);
  for (const Modulus& m : table.modulus) o.moduli.push_back(static_cast<int>(m.m));
  const int64_t cells = kBlockDepth * o.width;
  for_blocks(o, threads, poll, [&](int64_t panel, int64_t p0, int64_t block) {
    thread_local std::vector<double> buffer;
    thread_local std::vector<int32_t> pieces;
    const int64_t v0 = panel * o.width, n = block * o.width;
    buffer.resize(static_cast<size_t>(3 * cells));
    pieces.resize(static_cast<size_t>(2 * cells * table.words) + kPastEnd / sizeof(int32_t));
    double *value = buffer.data(), *f1 = value + cells, *f2 = f1 + cells;
    int32_t *sum = pieces.data(), *part = sum + n * table.words;
    if (inner || p0 == 0) fill_scales(o, shift, inner, v0, p0, inner ? block : std::min(kBlockDepth, o.k4 * 4), f1, f2);
    const auto cut = [&](const View& x, int32_t* out) {
      gather<double>(x, v0, o.width, p0, block, value, finite_or_zero);
      isa.residues.pieces_f64(value, f1, f2, n, table.words, out, nullptr);
    };
    cut(high, sum);
    cut(low, part);
    // Back to |piece| <= 2^27, which the digits rely on: carries of at most 1 into the next piece.
    constexpr int32_t kHalf = 1 << (kPieceBits - 1);
    for (int w = 0; w + 1 < table.words; ++w) {
      int32_t *s = sum + w * n, *next = s + n;
      const int32_t* q = part + w * n;
      for (int64_t i = 0; i < n; ++i) {
        const int32_t t = s[i] + q[i], carry = (t + kHalf) >> kPieceBits;
        s[i] = t - carry * (1 << kPieceBits);
        next[i] += carry;
      }
    }
    const int64_t last = (table.words - 1) * n;
    for (int64_t i = 0; i < n; ++i) sum[last + i] += part[last + i];
    write_residues(o, panel, p0, n, sum, table);
  });
  return o;
}

Operand pack_integers(const Isa& isa, bool left, const View& x, const ModuliTable& table, uint64_t modulus, int threads,
                      const Poll& poll) {
  Operand o = make_operand(isa, left, table.moduli, x.vectors, x.depth, table.halved);
  for (const Modulus& m : table.modulus) o.moduli.push_back(static_cast<int>(m.m));
  const int64_t cells = kBlockDepth * o.width;
  const bool is_unsigned = x.type == Type::u64;
  const std::optional<Centre> centre = modulus ? std::optional<Centre>(std::in_place, isa, modulus) : std::nullopt;
  for_blocks(o, threads, poll, [&](int64_t panel, int64_t p0, int64_t block) {
    thread_local std::vector<int64_t> value;
    thread_local std::vector<int32_t> pieces;
    const int64_t v0 = panel * o.width, n = block * o.width;
    value.resize(static_cast<size_t>(2 * cells));
    pieces.resize(static_cast<size_t>(cells * table.words) + kPastEnd / sizeof(int32_t));
    int64_t* entries = value.data();
    dispatch_integer(x.type, [&]<class T>(T) {
      gather<T>(x, v0, o.width, p0, block, entries, [](T e) { return static_cast<int64_t>(e); });
    });
    if (centre) {
      (*centre)(entries, n, is_unsigned, entries + cells);
      entries += cells;
    }
    isa.residues.pieces_i64(entries, n, table.words, is_unsigned && !centre, pieces.data());
    write_residues(o, panel, p0, n, pieces.data(), table);
  });
  return o;
}

Operand pack_words(const Isa& isa, bool left, const WordView& x, const ModuliTable& table, int threads,
                   const Poll& poll) {
  Operand o = make_operand(isa, left, table.moduli, x.vectors, x.depth, table.halved);
  for (const Modulus& m : table.modulus) o.moduli.push_back(static_cast<int>(m.m));
  const int64_t cells = kBlockDepth * o.width;
  for_blocks(o, threads, poll, [&](int64_t panel, int64_t p0, int64_t block) {
    thread_local std::vector<int32_t> pieces;
    const int64_t v0 = panel * o.width, n = block * o.width;
    pieces.assign(static_cast<size_t>(cells * table.words) + kPastEnd / sizeof(int32_t), 0);
    const int64_t nv = std::min<int64_t>(o.width, x.vectors - v0), np = std::min(block, x.depth - p0);
    for (int64_t p = 0; p < np; ++p)
      for (int64_t v = 0; v < nv; ++v) {
        const uint32_t* from = x.data + (v0 + v) * x.stride_v + (p0 + p) * x.stride_k;
        const uint32_t sign = from[x.words - 1] >> 31 ? ~0u : 0u;
        int32_t* out = pieces.data() + (p / 4) * o.width * 4 + 4 * v + p % 4;
        int32_t carry = 0;
        for (int w = 0; w < table.words; ++w) {
          const int64_t bit = int64_t{w} * kPieceBits, word = bit / 32;
          const uint64_t lo = word < x.words ? from[word] : sign, hi = word + 1 < x.words ? from[word + 1] : sign;
          const uint64_t window = (hi << 32 | lo) >> (bit % 32);
          if (w + 1 == table.words) {  // the rest with its sign, up to +2^27
            out[w * n] = static_cast<int32_t>(window) + carry;
          } else {
            const int32_t piece = static_cast<int32_t>(window & ((1u << kPieceBits) - 1)) + carry;
            carry = piece >= (1 << (kPieceBits - 1));
            out[w * n] = piece - carry * (1 << kPieceBits);
          }
        }
      }
    write_residues(o, panel, p0, n, pieces.data(), table);
  });
  return o;
}

namespace {

constexpr int kMostWidth = 64;  // of a panel, any instruction set

// The first byte of a block of bytes that lies wholly within the matrix and is contiguous in one direction, else null.
const uint8_t* whole_block(const View& x, int64_t v0, int64_t width, int64_t p0, int64_t block) {
  if ((x.type != Type::u8 && x.type != Type::i8) || (x.stride_v != 1 && x.stride_k != 1)) return nullptr;
  if (v0 + width > x.vectors || p0 + block > x.depth) return nullptr;
  return static_cast<const uint8_t*>(x.data) + v0 * x.stride_v + p0 * x.stride_k;
}

}  // namespace

Operand pack_direct(const Isa& isa, bool left, const View& x, int64_t zero_point, int threads, const Poll& poll) {
  Operand o = make_operand(isa, left, 1, x.vectors, x.depth);
  o.zero_point = zero_point;
  o.sums.assign(static_cast<size_t>(x.vectors), 0);
  for_blocks(o, threads, poll, [&](int64_t panel, int64_t p0, int64_t block) {
    const int64_t v0 = panel * o.width;
    uint8_t* out = const_cast<uint8_t*>(o.plane(panel, 0)) + p0 * o.width;
    const int64_t nv = std::min<int64_t>(o.width, o.vectors - v0);
    int64_t sums[kMostWidth] = {};
    if (const uint8_t* bytes = whole_block(x, v0, o.width, p0, block)) {
      isa.bytes.pack(bytes, x.stride_v, x.stride_k, o.width, block, out);
      isa.bytes.shift(left, out, block / 4, static_cast<uint8_t>(-zero_point), sums);
    } else {
      dispatch_integer(x.type, [&]<class T>(T) {
        gather<T>(x, v0, o.width, p0, block, out, [zero_point](T e) {
          return static_cast<uint8_t>(static_cast<uint64_t>(e) - static_cast<uint64_t>(zero_point));
        });
      });
      isa.bytes.shift(left, out, block / 4, 0, sums);
    }
    for (int64_t v = 0; v < nv; ++v) o.sums[static_cast<size_t>(v0 + v)] += sums[v];
  });
  return o;
}

Operand pack_magnitudes(const Isa& isa, bool left, const View& x, const int32_t* top, const int32_t* inner,
                        int threads, const Poll& poll) {
  Operand o = make_operand(isa, left, 1, x.vectors, x.depth);
  std::vector<int32_t> shift(static_cast<size_t>(x.vectors));
  for (size_t v = 0; v < shift.size(); ++v) shift[v] = 7 - top[v];
  const int64_t cells = kBlockDepth * o.width;
  for_blocks(o, threads, poll, [&](int64_t panel, int64_t p0, int64_t block) {
    thread_local std::vector<double> buffer;
    const int64_t v0 = panel * o.width, n = block * o.width;
    buffer.resize(static_cast<size_t>(3 * cells));
    double *value = buffer.data(), *f1 = value + cells, *f2 = f1 + cells;
    dispatch_float(x.type, [&]<class T>(T) {
      gather<T>(x, v0, o.width, p0, block, value, [](T e) { return finite_or_zero(static_cast<double>(e)); });
    });
    if (inner || p0 == 0)
      fill_scales(o, shift.data(), inner, v0, p0, inner ? block : std::min(kBlockDepth, o.k4 * 4), f1, f2);
    uint8_t* out = const_cast<uint8_t*>(o.plane(panel, 0)) + p0 * o.width;
    isa.residues.magnitudes(value, f1, f2, n, out);
  });
  return o;
}

}  // namespace gemmulate
