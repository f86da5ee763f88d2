// A matrix operand as packed residue panels: the deconstruction.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "isa.hpp"
#include "parallel.hpp"

namespace gemmulate {

enum class Type { f64, f32, i8, i16, i32, i64, u8, u16, u32, u64 };

// `vectors` vectors (rows of the left matrix, columns of the right one) of length `depth`; strides in elements.
struct View {
  const void* data;
  Type type;
  int64_t vectors, depth;
  int64_t stride_v, stride_k;
};

inline bool is_unsigned(Type type) {
  return type == Type::u8 || type == Type::u16 || type == Type::u32 || type == Type::u64;
}
inline int item_bytes(Type type) {
  switch (type) {
    case Type::i8: case Type::u8: return 1;
    case Type::i16: case Type::u16: return 2;
    case Type::i32: case Type::u32: case Type::f32: return 4;
    default: return 8;
  }
}
// Whether neighbours in memory belong to different vectors.
inline bool runs_across(const View& x) { return std::abs(x.stride_v) < std::abs(x.stride_k); }

// Integers of any size: two's complement, `words` little-endian 32-bit words for each element.
struct WordView {
  const uint32_t* data;
  int64_t vectors, depth, words;
  int64_t stride_v, stride_k;  // in words
};

class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(size_t bytes);
  uint8_t* get() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    size_t bytes;
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t[], Free> data_;
  size_t size_ = 0;
};

// What the packing of one side needs to know of the moduli.
struct ModuliTable {
  int moduli = 0;
  bool halved = false;  // pack for one level of Strassen and Winograd's algorithm
  int words = 0;  // of two digits
  std::vector<Modulus> modulus;
  std::vector<int32_t> coef;  // [moduli][words]
};

// The seven left and right factors of Strassen's algorithm in Winograd's form (Strassen 1969; Winograd 1971), products
// P_q = L_q R_q: A11 B11, A12 B21, S4 B22, A22 (-T4), S1 T1, S2 T2, S3 T3, with S1 = A21 + A22, S2 = S1 - A11,
// S3 = A11 - A21, S4 = A12 - S2, T1 = B12 - B11, T2 = B22 - T1, T3 = B22 - B12, T4 = T2 - B21. Modulo m every factor is
// a residue again, so the algorithm changes no bit of a result.
inline constexpr int kFactors = 7;

// Planes of residues: [panel][plane][ceil(depth/4)][width][4], zero padded. Halved: the panels are those of one half
// of the vectors and of the depth, and each modulus has the planes of its seven factors.
struct Operand {
  const Isa* isa = nullptr;
  bool left = false;
  int planes = 0;
  int width = 0;
  int64_t vectors = 0, depth = 0;
  int64_t k4 = 0;    // of what the panels hold
  int64_t span = 0;  // vectors that the panels hold: all of them or, of a halved operand, one half in whole panels
  bool halved = false;
  std::vector<int> moduli;  // of residue planes
  AlignedBytes bytes;
  std::vector<int64_t> sums;      // direct packing: sum of the stored bytes of each vector
  int64_t zero_point = 0;         // direct packing: value = stored byte + zero_point
  std::vector<int32_t> inexact;   // entries of each vector that were rounded (when asked for)

  int64_t panels() const { return (span + width - 1) / width; }
  int factors() const { return halved ? kFactors : 1; }
  size_t plane_bytes() const { return static_cast<size_t>(k4) * width * 4; }
  const uint8_t* plane(int64_t panel, int l) const {
    return bytes.get() + (static_cast<size_t>(panel) * planes * factors() + l) * plane_bytes();
  }
};

// An operand of that size without its values.
Operand make_operand(const Isa& isa, bool left, int planes, int64_t vectors, int64_t depth, bool halved = false);

// x_vp -> rint(x_vp 2^(shift[v] + inner[p])); nonfinite entries count as zero. inner may be null.
Operand pack_floats(const Isa& isa, bool left, const View& x, const int32_t* shift, const int32_t* inner,
                    const ModuliTable& table, bool count_inexact, int threads, const Poll& poll);
// The same for pairs of float64, value = high + low: integers within 3/4 of (high + low) 2^shift[v]. A fraction of
// high 2^shift leaves |low 2^shift| <= 1/4, which rounds to zero. With inner, shift[v] + inner[p] throughout.
Operand pack_pairs(const Isa& isa, bool left, const View& high, const View& low, const int32_t* shift,
                   const int32_t* inner, const ModuliTable& table, int threads, const Poll& poll);
// With modulus (2 ... 2^63, else 0) of x_vp mod it, of least magnitude.
Operand pack_integers(const Isa& isa, bool left, const View& x, const ModuliTable& table, uint64_t modulus, int threads,
                      const Poll& poll);
Operand pack_words(const Isa& isa, bool left, const WordView& x, const ModuliTable& table, int threads,
                   const Poll& poll);
// One plane of bytes: x - zero_point, which fits u8 (left) or s8 (right).
Operand pack_direct(const Isa& isa, bool left, const View& x, int64_t zero_point, int threads, const Poll& poll);
// One plane of magnitudes floor(|x_vp| 2^(7 - top[v] + inner[p])) in [0, 127]: |x_vp| 2^inner[p] < 2^top[v].
Operand pack_magnitudes(const Isa& isa, bool left, const View& x, const int32_t* top, const int32_t* inner,
                        int threads, const Poll& poll);

}  // namespace gemmulate
