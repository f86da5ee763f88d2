// Products of packed operands with the reconstruction fused into each tile.
#pragma once

#include <cstdint>
#include <vector>

#include "operand.hpp"

namespace gemmulate {

enum class Out { f64, f32, f16, bf16, pair, i64, u64, words, i32, mod };

struct Target {
  Out kind;
  void* data;                // element (i, j) at i * stride_i + j * stride_j
  int64_t stride_i, stride_j;  // in elements (words: in elements of `words` words)
  int words = 1;
  double* low = nullptr;  // pair: value = data + low, with strides of its own
  int64_t low_stride_i = 0, low_stride_j = 0;
  uint64_t modulus = 0;  // mod: results in [0, modulus) as int64, 2 <= modulus <= 2^63
};

struct Index {
  int64_t i, j;
};

struct Recombination {
  CrtTable crt;
  std::vector<Modulus> modulus;
  const int32_t* row_exponent = nullptr;  // floats: value = integer * 2^(row + column)
  const int32_t* column_exponent = nullptr;
  // Correct rounding: an element whose operands were rounded is certain when integer +- bound rounds to one value;
  // bound = inexact[i] 2^(bits_right - 1) + inexact[j] 2^(bits_left - 1).
  bool check = false;
  int bits_left = 0, bits_right = 0;
};

struct Outcome {
  int bits = 0;                   // largest bit length of an integer result, its sign included
  int64_t zeros = 0;              // results of a float product that are zero
  std::vector<Index> uncertain;   // in order
};

Outcome multiply_residues(const Operand& left, const Operand& right, const Recombination& r, const Target& target,
                          int threads, const Poll& poll);

// One plane with zero points: exact integers. Kinds i32, i64, u64, mod.
Outcome multiply_direct(const Operand& left, const Operand& right, const Target& target, int threads,
                        const Poll& poll);

// need[i * n + j]: bits that element (i, j) asks for so that the truncation bound
// 2^(bits-16) (sum_left + sum_right + 1) is at most budget * 2^(2 bits - 14) L_ij, L the product of the magnitudes:
// ceil(log2((sums + 1) / (L * budget))) - 2, clipped to [0, 255]; 0 for a zero vector, 255 where L = 0.
// hist[256] counts them.
std::vector<int64_t> assess(const Operand& left, const Operand& right, const uint64_t* sum_left,
                            const uint64_t* sum_right, double budget, uint8_t* need, int threads, const Poll& poll);

}  // namespace gemmulate
