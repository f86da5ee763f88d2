// Kernels for AVX2 with FMA. VPMADDUBSW saturates at 2^15 (255 * 128 * 2 does not fit), so both operands are
// widened to 16 bits and multiplied by VPMADDWD.
#include <immintrin.h>

#include "isa.hpp"

namespace gemmulate {
namespace {

constexpr int kVectorBytes = 32;
#include "kernels.inc"
#include "kernels_avx2.inc"
#include "modular_kernels.inc"
#include "pair_kernels.inc"
#include "small_avx2.inc"

// Tile 2 x 16, packing [k/4][width][4]; 8 accumulators of two partial sums for each column, 4 for b, 1 for a.
constexpr int kMr = 2, kNr = 16;

#include "byte_kernels.inc"

void igemm_i32_u8s8_2x16_avx2(const uint8_t* a, const int8_t* b, int64_t k4, int32_t* c, int64_t ldc,
                              bool accumulate) {
  __m256i acc[kMr][4];
  for (auto& row : acc)
    for (auto& v : row) v = _mm256_setzero_si256();
  for (int64_t p = 0; p < k4; ++p, a += 4 * kMr, b += 4 * kNr) {
    __m256i bw[4];
    for (int j = 0; j < 4; ++j)
      bw[j] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 16 * j)));
    for (int i = 0; i < kMr; ++i) {
      int32_t quad;
      __builtin_memcpy(&quad, a + 4 * i, 4);
      const __m256i aw = _mm256_cvtepu8_epi16(_mm_set1_epi32(quad));
      for (int j = 0; j < 4; ++j) acc[i][j] = _mm256_add_epi32(acc[i][j], _mm256_madd_epi16(aw, bw[j]));
    }
  }
  for (int i = 0; i < kMr; ++i)
    for (int j = 0; j < 4; ++j) {
      // [c0 c0' c1 c1' | c2 c2' c3 c3'] -> [c0 c1 c2 c3]
      const __m128i lo = _mm256_castsi256_si128(acc[i][j]), hi = _mm256_extracti128_si256(acc[i][j], 1);
      __m128i sum = _mm_hadd_epi32(lo, hi);
      auto* out = reinterpret_cast<__m128i*>(c + i * ldc + 4 * j);
      if (accumulate) sum = _mm_add_epi32(sum, _mm_loadu_si128(out));
      _mm_storeu_si128(out, sum);
    }
}

bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

const Isa& isa_avx2() {
  static constexpr Isa isa{"avx2", supported,  kMr,         kNr,         igemm_i32_u8s8_2x16_avx2,
                           kResidueKernels, crt, round_values, low_bits,
                           {4, 4, wrap64_4x4_avx2},
                           {6, 16, multiply_wide<uint32_t, 6, 2>},
                           {2, 8, anchored_2x8_avx2},
                           scan_across, scan_along, norms_f64, round_anchored, kPairKernels, bits_needed,
                           kByteKernels, centre, centre_near, kModularKernels, kSmallKernels};
  return isa;
}

}  // namespace gemmulate
