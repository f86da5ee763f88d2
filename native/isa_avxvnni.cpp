// Kernels for AVX-VNNI: VPDPBUSD on 256 bits (client processors without AVX-512).
#include <cpuid.h>
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

// Tile 6 x 16, packing [k/4][width][4]; 12 accumulators, 2 for b, 1 for a: 15 of 16 registers.
// Exact to depth 65,793 (u8 x s8 into int32).
constexpr int kMr = 6, kNr = 16;

#include "byte_kernels.inc"

void igemm_i32_u8s8_6x16_avxvnni(const uint8_t* a, const int8_t* b, int64_t k4, int32_t* c, int64_t ldc,
                                 bool accumulate) {
  __m256i acc[kMr][2];
  for (auto& row : acc) row[0] = row[1] = _mm256_setzero_si256();
  for (int64_t p = 0; p < k4; ++p, a += 4 * kMr, b += 4 * kNr) {
    const __m256i b0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    const __m256i b1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 32));
    for (int i = 0; i < kMr; ++i) {
      int32_t quad;
      __builtin_memcpy(&quad, a + 4 * i, 4);
      const __m256i av = _mm256_set1_epi32(quad);
      acc[i][0] = _mm256_dpbusd_avx_epi32(acc[i][0], av, b0);
      acc[i][1] = _mm256_dpbusd_avx_epi32(acc[i][1], av, b1);
    }
  }
  for (int i = 0; i < kMr; ++i)
    for (int j = 0; j < 2; ++j) {
      auto* out = reinterpret_cast<__m256i*>(c + i * ldc + 8 * j);
      __m256i sum = acc[i][j];
      if (accumulate) sum = _mm256_add_epi32(sum, _mm256_loadu_si256(out));
      _mm256_storeu_si256(out, sum);
    }
}

// CPUID leaf 7, subleaf 1, EAX bit 4; gcc 12 has no name for it in __builtin_cpu_supports.
bool supported() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return false;
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 4 & 1);
}

}  // namespace

const Isa& isa_avxvnni() {
  static constexpr Isa isa{"avxvnni", supported,  kMr,         kNr,         igemm_i32_u8s8_6x16_avxvnni,
                           kResidueKernels, crt, round_values, low_bits,
                           {4, 4, wrap64_4x4_avx2},
                           {6, 16, multiply_wide<uint32_t, 6, 2>},
                           {2, 8, anchored_2x8_avx2},
                           scan_across, scan_along, norms_f64, round_anchored, kPairKernels, bits_needed,
                           kByteKernels, centre, centre_near, kModularKernels, kSmallKernels};
  return isa;
}

}  // namespace gemmulate
