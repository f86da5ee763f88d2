// Kernels for AVX512-VNNI (with F, BW, DQ, VL): VPDPBUSD on 512 bits, 64 products for each instruction.
#include <immintrin.h>

#include "isa.hpp"

namespace gemmulate {
namespace {

constexpr int kVectorBytes = 64;
#include "kernels.inc"
#include "modular_kernels.inc"
#include "pair_kernels.inc"

typedef double Doubles __attribute__((vector_size(kVectorBytes)));
typedef uint64_t Words __attribute__((vector_size(kVectorBytes)));
typedef int32_t Ints __attribute__((vector_size(kVectorBytes)));
typedef int64_t Longs __attribute__((vector_size(kVectorBytes)));
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef int8_t Chars __attribute__((vector_size(kVectorBytes)));

#define GEMMULATE_FMA
inline Doubles broadcast(const double* p) { return _mm512_set1_pd(*p); }
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }
inline Doubles multiply_subtract(Doubles a, Doubles b, Doubles c) { return _mm512_fmsub_pd(a, b, c); }
inline Words multiply_halves(Words a, Words b) { return (Words)_mm512_mul_epi32((__m512i)a, (__m512i)b); }
inline Ints add_pairs(Ints sum, Ints a, Ints b) {
  return (Ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}
inline unsigned differ(Doubles a, Doubles b) { return _mm512_cmp_pd_mask(a, b, _CMP_NEQ_UQ); }
// Lanes whose two ends round to different numbers, or both to zero while they differ.
inline unsigned round_f32(Doubles least, Doubles most, float* out) {
  const __m256 low = _mm512_cvtpd_ps(least), high = _mm512_cvtpd_ps(most);
  _mm256_storeu_ps(out, low);
  return _mm256_cmp_ps_mask(low, high, _CMP_NEQ_UQ) |
         (_mm256_cmp_ps_mask(low, _mm256_setzero_ps(), _CMP_EQ_OQ) & differ(least, most));
}
#include "small_kernels.inc"
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Chars pack_words(Ints a, Ints b, Ints c, Ints d) {
  const __m512i ab = _mm512_packs_epi32((__m512i)a, (__m512i)b), cd = _mm512_packs_epi32((__m512i)c, (__m512i)d);
  // The packing works in lanes of 128 bits: [a0 b0 c0 d0 | a1 b1 c1 d1 | ...] in groups of four bytes.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return (Chars)_mm512_permutexvar_epi32(order, _mm512_packs_epi16(ab, cd));
}
#include "residue_kernels.inc"

// Tile 12 x 32, packing [k/4][width][4]; 24 accumulators, 2 for b, the broadcast of a from memory: 26 of 32
// registers. 14 loads for 24 VPDPBUSD keep both load ports below the two multiply ports.
// Exact to depth 65,793 (u8 x s8 into int32).
constexpr int kMr = 12, kNr = 32;

#include "byte_kernels.inc"

void igemm_i32_u8s8_12x32_avx512vnni(const uint8_t* a, const int8_t* b, int64_t k4, int32_t* c, int64_t ldc,
                                     bool accumulate) {
  __m512i acc[kMr][2];
#pragma GCC unroll 12
  for (int i = 0; i < kMr; ++i) acc[i][0] = acc[i][1] = _mm512_setzero_si512();
  for (int64_t p = 0; p < k4; ++p, a += 4 * kMr, b += 4 * kNr) {
    const __m512i b0 = _mm512_loadu_si512(b);
    const __m512i b1 = _mm512_loadu_si512(b + 64);
    // Eight steps ahead: the right panel of a deep product does not fit into the first-level cache.
    _mm_prefetch(reinterpret_cast<const char*>(b) + 1024, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(b) + 1088, _MM_HINT_T0);
#pragma GCC unroll 12
    for (int i = 0; i < kMr; ++i) {
      int32_t quad;
      __builtin_memcpy(&quad, a + 4 * i, 4);
      const __m512i av = _mm512_set1_epi32(quad);
      acc[i][0] = _mm512_dpbusd_epi32(acc[i][0], av, b0);
      acc[i][1] = _mm512_dpbusd_epi32(acc[i][1], av, b1);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kMr; ++i) {
    int32_t* out = c + i * ldc;
    if (accumulate) {
      acc[i][0] = _mm512_add_epi32(acc[i][0], _mm512_loadu_si512(out));
      acc[i][1] = _mm512_add_epi32(acc[i][1], _mm512_loadu_si512(out + 16));
    }
    _mm512_storeu_si512(out, acc[i][0]);
    _mm512_storeu_si512(out + 16, acc[i][1]);
  }
}

// Anchored sums (isa.hpp), tile 4 x 24: 24 accumulators, 3 for b, 1 for a, 2 temporaries of 32 registers. Two
// multiplications and two additions for a term, against one multiplication of a plain product.
void anchored_4x24_avx512(const double* a, const double* b, int64_t k, double* head, double* tail, int64_t ld) {
  __m512d h[4][3], t[4][3];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      h[i][j] = _mm512_loadu_pd(head + i * ld + 8 * j);
      t[i][j] = _mm512_loadu_pd(tail + i * ld + 8 * j);
    }
  for (int64_t p = 0; p < k; ++p, a += 4, b += 24) {
    const __m512d right[3] = {_mm512_loadu_pd(b), _mm512_loadu_pd(b + 8), _mm512_loadu_pd(b + 16)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512d left = _mm512_set1_pd(a[i]);
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        const __m512d sum = _mm512_fmadd_pd(left, right[j], h[i][j]);
        const __m512d kept = _mm512_sub_pd(sum, h[i][j]);
        h[i][j] = sum;
        t[i][j] = _mm512_add_pd(t[i][j], _mm512_fmsub_pd(left, right[j], kept));
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      _mm512_storeu_pd(head + i * ld + 8 * j, h[i][j]);
      _mm512_storeu_pd(tail + i * ld + 8 * j, t[i][j]);
    }
}

bool supported() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace

const Isa& isa_avx512vnni() {
  static constexpr Isa isa{"avx512vnni", supported,  kMr,         kNr,         igemm_i32_u8s8_12x32_avx512vnni,
                           kResidueKernels, crt, round_values, low_bits,
                           {12, 16, multiply_wide<uint64_t, 12, 2>},
                           {12, 32, multiply_wide<uint32_t, 12, 2>},
                           {4, 24, anchored_4x24_avx512},
                           scan_across, scan_along, norms_f64, round_anchored, kPairKernels, bits_needed,
                           kByteKernels, centre, centre_near, kModularKernels, kSmallKernels};
  return isa;
}

}  // namespace gemmulate
