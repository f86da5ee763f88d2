// Kernels for any processor: plain C++, no intrinsics.
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "isa.hpp"

namespace gemmulate {
namespace {

constexpr int kVectorBytes = 16;
#include "kernels.inc"
#include "modular_kernels.inc"
#include "pair_kernels.inc"

typedef double Doubles __attribute__((vector_size(kVectorBytes)));
typedef uint64_t Words __attribute__((vector_size(kVectorBytes)));
typedef int32_t Ints __attribute__((vector_size(kVectorBytes)));
typedef int64_t Longs __attribute__((vector_size(kVectorBytes)));
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef int8_t Chars __attribute__((vector_size(kVectorBytes)));

inline Doubles broadcast(const double* p) { return Doubles{*p, *p}; }
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return a * b + c; }
inline Words multiply_halves(Words a, Words b) { return a * b; }
inline Ints add_pairs(Ints sum, Ints a, Ints b) {
  return sum + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
}
#include "small_kernels.inc"
inline Floats multiply_add(Floats a, Floats b, Floats c) { return a * b + c; }
inline Chars pack_words(Ints a, Ints b, Ints c, Ints d) {
  Chars out;
  for (int i = 0; i < 4; ++i) {
    out[i] = static_cast<int8_t>(a[i]);
    out[4 + i] = static_cast<int8_t>(b[i]);
    out[8 + i] = static_cast<int8_t>(c[i]);
    out[12 + i] = static_cast<int8_t>(d[i]);
  }
  return out;
}
#include "residue_kernels.inc"

// Tile 4 x 8, packing [k/4][width][4], exact to depth 65,793 = floor((2^31 - 1) / (255 * 128)).
constexpr int kMr = 4, kNr = 8;

#include "byte_kernels.inc"

void igemm_i32_u8s8_4x8_scalar(const uint8_t* a, const int8_t* b, int64_t k4, int32_t* c, int64_t ldc,
                               bool accumulate) {
  int32_t acc[kMr][kNr] = {};
  for (int64_t p = 0; p < k4; ++p, a += 4 * kMr, b += 4 * kNr)
    for (int i = 0; i < kMr; ++i)
      for (int j = 0; j < kNr; ++j)
        acc[i][j] += a[4 * i] * b[4 * j] + a[4 * i + 1] * b[4 * j + 1] + a[4 * i + 2] * b[4 * j + 2] +
                     a[4 * i + 3] * b[4 * j + 3];
  for (int i = 0; i < kMr; ++i)
    for (int j = 0; j < kNr; ++j) c[i * ldc + j] = acc[i][j] + (accumulate ? c[i * ldc + j] : 0);
}

bool supported() { return true; }

}  // namespace

const Isa& isa_scalar() {
  static constexpr Isa isa{"scalar", supported,  kMr,         kNr,         igemm_i32_u8s8_4x8_scalar,
                           kResidueKernels, crt, round_values, low_bits,
                           {2, 2, multiply_wide<uint64_t, 2, 1>},
                           {2, 8, multiply_wide<uint32_t, 2, 2>},
                           {},
                           scan_across, scan_along, norms_f64, round_anchored, kPairKernels, bits_needed,
                           kByteKernels, centre, centre_near, kModularKernels, kSmallKernels};
  return isa;
}

}  // namespace gemmulate
