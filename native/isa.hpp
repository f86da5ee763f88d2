// The seam between the loops that are written once and the kernels of one instruction set.
//
// Every kernel computes exact integers, some of them carried by floating-point registers, so every
// instruction set gives the same bits.
#pragma once

#include <cstdint>

namespace gemmulate {

// Radix of the digits into which every integer operand is cut before its residues are taken:
// x = sum_d digit_d 2^(14 d) with |digit_d| <= 2^13, two of them in a 32-bit word. Four digits times coefficients
// |c| <= m/2 and a residue from before sum to less than 2^22 (of m = 256 the low bits count alone), where q = rint(s/m)
// in float32 is the nearest integer: its error |s/m| 2^-23 stays below 1/(2m), the distance of s/m from a tie for odd m;
// and |q| <= 2^14 + 1.
inline constexpr int kDigitBits = 14;
inline constexpr int kPieceBits = 2 * kDigitBits;  // of a word
inline constexpr int kWordGroup = 2;               // words between two reductions

// Radix of the limbs of the CRT weights M_l = P/m_l: sum_l y_l M_l[w] with |y_l| <= 128 and up to 54
// moduli stays below 54 2^7 2^40 < 2^53, exact in float64.
inline constexpr int kLimbBits = 40;
inline constexpr int kMaxLimbs = 10;   // 400 bits; all moduli up to 256 give 2^363 at most (primes and prime powers)
inline constexpr int kMaxModuli = 54;  // pairwise coprime moduli <= 256: one for each prime below 256

// u8 x s8 sums |c| <= 255 * 128 * depth; at depth 32768 they stay below 2^30, where the reduction's first
// fold (c = 2^16 hi + lo) stays below 2^22. Longer sums are folded back to one residue first.
inline constexpr int64_t kFoldDepth = 32768;

// One modulus as the reduction kernels need it.
struct Modulus {
  int32_t fold;  // 2^16 mod m, symmetric
  float m;
  float inv;  // fl(1/m)
};

struct CrtTable {
  int moduli;
  int limbs;
  const double* weight;   // [limbs][moduli]: limbs of P/m_l
  const double* inverse;  // [moduli]: 1/m_l
  const double* product;  // [limbs]: limbs of P
};

// c[mr][ldc] += left panel [k][mr] times right panel [k][nr] of unsigned integers, modulo 2^(8 sizeof(T)).
template <class T>
struct WrapKernel {
  int mr, nr;
  void (*multiply)(const T* a, const T* b, int64_t k, T* c, int64_t ldc);
};
// Pairs of float64 (pair_kernels.inc). n is a multiple of 8 everywhere.
struct PairKernels {
  // The integers that crt left, times scale[i], rounded once to high + low; hard[i] where this cannot tell.
  void (*round)(const double* acc, int64_t n, int limbs, const double* scale, double* high, double* low,
                uint8_t* hard);
  void (*exponents)(const double* high, const double* low, const int64_t* shift, int64_t n, int64_t* largest,
                    int64_t* lsb, int64_t* special);
  void (*norms)(const double* x, const double* f1, const double* f2, int64_t n, double* sum, double* square);
};
// Deconstruction and reduction (residue_kernels.inc).
struct ResidueKernels {
  // y = symmetric residue of c; |c| <= 2^30 + 2^8.
  void (*reduce)(const int32_t* c, int64_t n, const Modulus& m, int8_t* y);
  // Pieces of rint(x * f1 * f2) for |x f1 f2| <= 2^(28 count - 1), at most 2^27 each; piece w at out[w * n], n a
  // multiple of 8. Sets inexact[i] where x * f1 * f2 had a fraction (inexact may be null).
  void (*pieces_f64)(const double* x, const double* f1, const double* f2, int64_t n, int count, int32_t* out,
                     uint8_t* inexact);
  // The same of the integers v, which are overwritten.
  void (*pieces_i64)(int64_t* v, int64_t n, int count, bool is_unsigned, int32_t* out);
  void (*words_of_pieces)(int32_t* pieces, int64_t n);
  // Residues, in [0, m) or symmetric, of the integers given by `count` planes of n words; coef: two digits' weights in a
  // word, 2^(14 d) times the operand's factor, mod m, symmetric. Reads up to kPastEnd bytes past the last plane.
  void (*left)(const int32_t* words, int64_t n, int count, const int32_t* coef, const Modulus& m, uint8_t* out);
  void (*right)(const int32_t* words, int64_t n, int count, const int32_t* coef, const Modulus& m, uint8_t* out);
  // floor(|x * f1 * f2|), below 128; n a multiple of 8.
  void (*magnitudes)(const double* x, const double* f1, const double* f2, int64_t n, uint8_t* out);
};
inline constexpr int kPastEnd = 256;  // four vectors of 64 bytes
// Direct products of bytes (byte_kernels.inc).
struct ByteKernels {
  void (*pack)(const uint8_t* x, int64_t stride_v, int64_t stride_k, int64_t width, int64_t depth, uint8_t* out);
  void (*shift)(bool left, uint8_t* block, int64_t quads, uint8_t offset, int64_t* sums);
  int32_t (*correct_i32)(const int32_t* sum, const int32_t* column, int32_t row, int64_t n, int32_t* out);
  int32_t (*correct_i64)(const int32_t* sum, const int32_t* column, int32_t row, int64_t n, int64_t* out);
};
// Products modulo p (modular_kernels.inc). `item` and `is_unsigned` give an integer type by its bytes.
struct ModularKernels {
  void (*remainders)(int item, bool is_unsigned, const void* x, int64_t n, int64_t p, int64_t high, int32_t* out);
  void (*cut)(int bits, int digits, bool balanced, const int32_t* x, int64_t n, uint8_t* out, int64_t stride);
  void (*combine)(int count, const int32_t* sum, int64_t stride, const double* weight, int64_t n, int64_t p, bool add,
                  int64_t* out);
  void (*correct)(const int32_t* sum, const int32_t* column, int32_t row, int64_t n, uint64_t p, int64_t* out);
  void (*limbs)(const double* acc, int64_t n, int limbs, uint64_t p, int64_t* out);  // n is a multiple of 8
  void (*range)(int item, bool is_unsigned, const void* x, int64_t n, int64_t* least, int64_t* most);
};
// Lanes of `exponents` that saw no number: largest -kUnsetExponent, lsb +kUnsetExponent, or a few thousand off.
inline constexpr int64_t kUnsetExponent = 1 << 20;

// For each term x = a b: s = fl(head + x) with one rounding (FMA), tail += fl(x - (s - head)), head = s.
// Left panel [k][mr], right panel [k][nr]; head and tail are [mr][ld]. No kernel without FMA.
struct AnchoredKernel {
  int mr = 0, nr = 0;
  void (*multiply)(const double* a, const double* b, int64_t k, double* head, double* tail, int64_t ld) = nullptr;
};

// Sums in [kLeastAnchoredSum, 2^62), scaled by at most 2^(+-800), are normal numbers.
inline constexpr double kLeastAnchoredSum = 0x1p-200;
struct AnchoredRow {
  double anchor, unit, slack, factor;
};
struct AnchoredColumns {
  const double *scale, *slack, *factor;
};

// Initial `lowest` of a scan: above every exponent.
inline constexpr int64_t kNothingSeen = int64_t{1} << 40;

// Small products (small.hpp, small_kernels.inc): rows x depth times depth x columns, rows a multiple of kSmallTileRows,
// columns one of `lanes` (small_short: 2 lanes); out has ld elements in a row.
inline constexpr int kSmallTileRows = 4;
struct SmallShape {
  int64_t rows, columns, depth, ld;
};
struct SmallKernels {
  int lanes = 0;
  void (*wide)(const SmallShape& s, const uint64_t* a, const uint64_t* b, uint64_t* out) = nullptr;
  void (*half)(const SmallShape& s, const uint64_t* a, const uint64_t* b, uint64_t* out) = nullptr;
  void (*shorts)(const SmallShape& s, const int16_t* a, const int16_t* b, uint64_t* out) = nullptr;
  void (*plain)(const SmallShape& s, const double* a, const double* b, double* out) = nullptr;
  void (*both)(const SmallShape& s, bool halves, const uint64_t* a, const uint64_t* b, const double* u, const double* v,
               uint64_t* low, double* value) = nullptr;
  void (*modulo)(int64_t n, uint64_t* low, const double* value, uint64_t p) = nullptr;
  bool (*row_norms)(int64_t rows, int64_t depth, const double* x, double* scale) = nullptr;
  bool (*column_norms)(int64_t depth, int64_t columns, const double* x, double* scale) = nullptr;
  bool (*multiples)(int64_t n, const double* x, double shifter) = nullptr;
  void (*doubles)(int64_t n, const uint64_t* x, bool without_sign, double* out) = nullptr;
  bool (*centre)(int64_t n, uint64_t* x, uint64_t p) = nullptr;
  int (*bits)(int64_t n, const uint64_t* x, bool without_sign) = nullptr;
  // No kernel without FMA.
  uint64_t (*f32)(const SmallShape& s, const double* a, const double* b, const double* row, const double* column,
                  float* out, uint8_t* open) = nullptr;
  uint64_t (*f64)(const SmallShape& s, const double* a, const double* b, const double* row, const double* column,
                  double unit, double* out, uint8_t* open) = nullptr;
};

struct Isa {
  const char* name;
  bool (*supported)();
  int mr;  // rows of a register tile: width of a left panel
  int nr;  // columns of a register tile: width of a right panel
  // c[mr][ldc] (+)= left panel (u8, [k/4][mr][4]) times right panel (s8, [k/4][nr][4]), int32.
  void (*igemm)(const uint8_t* a, const int8_t* b, int64_t k4, int32_t* c, int64_t ldc, bool accumulate);
  ResidueKernels residues;
  // acc[w * n + i] = sum_l y[l * stride + i] M_l[w] - q_i P[w], q_i = rint(sum_l y_l / m_l): the limbs (not
  // normalised, signed) of the integer in (-P/2, P/2). n is a multiple of 8.
  void (*crt)(const int8_t* y, int64_t stride, int64_t n, const CrtTable& table, double* acc);
  // The integers of up to four limbs that crt left, times scale[i] (a power of two that keeps every result normal),
  // rounded to nearest even, or to odd for a later rounding to a narrower format. hard[i] is set where this cannot
  // tell the result: too small a leading part, or (bound not null) an interval value +- bound[i] that may hold a
  // rounding boundary. n is a multiple of 8.
  void (*round)(const double* acc, int64_t n, int limbs, const double* scale, const double* bound, bool to_odd,
                double* out, uint8_t* hard);
  // The low 64 bits of those integers; returns an upper bound of their magnitude.
  double (*low_bits)(const double* acc, int64_t n, int limbs, int64_t* out);
  WrapKernel<uint64_t> wrap64;
  WrapKernel<uint32_t> wrap32;
  AnchoredKernel anchored;
  // What scan, norms and anchored sums ask of every entry or element: see kernels.inc.
  void (*scan_across)(const double* x, int64_t n, int64_t* largest, int64_t* lowest, int64_t* special);
  void (*scan_along)(const double* x, int64_t n, int64_t* largest, int64_t* lowest, int64_t* special);
  void (*norms_f64)(const double* x, const double* f1, const double* f2, int64_t n, double* sum, double* square,
                    double* peak);
  void (*round_anchored)(const double* head, const double* tail, int64_t n, const AnchoredRow& row,
                         const AnchoredColumns& column, double* out, uint8_t* hard);
  PairKernels pair;
  void (*bits_needed)(const double* magnitudes, const double* sum_right, double sum_left, double budget, int64_t n,
                      uint8_t* out);
  ByteKernels bytes;
  // x mod p of least magnitude (kernels.inc): p < 2^31; p <= 2^63 and every |x| < p, else false.
  void (*centre)(const int64_t* x, int64_t n, int64_t p, bool is_unsigned, int64_t* out);
  bool (*centre_near)(const int64_t* x, int64_t n, uint64_t p, int64_t* out);
  ModularKernels modular;
  SmallKernels small;
};

const Isa& isa_scalar();
const Isa& isa_avx2();
const Isa& isa_avxvnni();
const Isa& isa_avx512vnni();

}  // namespace gemmulate
