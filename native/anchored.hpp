// Correctly rounded products of floats by the machine's own FMA: anchored sums.
//
// Rows of A and columns of B are scaled by powers of two below 1. The sum of element (i, j) starts at the anchor
// 1.5 2^p, where 2^(p-1) exceeds |a_i| |b_j| (Euclidean norms) and so every partial sum: it never leaves the binade
// [2^p, 2^(p+1)), whose numbers are the multiples of g = 2^(p-52). Each term ab is then cut by one FMA into a
// multiple of g, which is added exactly, and a rest of at most g/2, which another FMA gives with one rounding
// (splitting against a fixed exponent: Rump, Ogita and Oishi 2008, ExtractVector). The rests are summed in float64.
// Over depth k their sum is off by at most 2^-54 g (k + k (k - 1)) = 2^-54 g k^2, or by nothing where the grid of
// the products' lowest bits holds it. An element whose rounding this bound leaves open is reported, not written.
#pragma once

#include "panels.hpp"
#include "product.hpp"
#include "survey.hpp"

namespace gemmulate {

// Entries of one vector may span this many bits: products of scaled entries then stay above 2^-800, and the rests,
// whose lowest bits lie 106 below, are normal numbers.
inline constexpr int kAnchoredSpan = 400;

struct AnchoredOperand {
  Panels panels;
  std::vector<int32_t> top;     // entries scaled by 2^-top[v]
  std::vector<int32_t> norm;    // |scaled vector| < 2^norm[v], Euclidean
  std::vector<int32_t> lowest;  // scaled entries are multiples of 2^lowest[v]
  bool ordinary = false;        // every |top[v]| <= 400
  std::vector<double> scale, slack, factor;  // of a right operand: 2^norm, lowest - norm and, where ordinary, 2^top
};

// x: float64 or float32; nonfinite entries count as zero. Every span top - lsb is at most kAnchoredSpan.
AnchoredOperand pack_anchored(const Isa& isa, bool left, const View& x, const int32_t* top, const int32_t* lsb,
                              int threads, const Poll& poll);

struct AnchoredOutcome {
  bool complete = true;          // false: more than `limit` elements stayed open, and the output is unspecified
  int64_t zeros = 0;             // results that are zero (+0)
  std::vector<Index> uncertain;  // in order
};

// Target kinds f64 and f32.
AnchoredOutcome multiply_anchored(const AnchoredOperand& left, const AnchoredOperand& right, const Target& target,
                                  int64_t limit, int threads, const Poll& poll);

// The whole of a small product in one call: survey, sums, open elements by exact_dots, signs of zeros. Returns false,
// with an unspecified output, where the operands hold NaN or infinity, span too much, or leave many elements open.
bool exact_product(const Isa& isa, const View& a, const View& b, const Target& target, int threads, const Poll& poll);

}  // namespace gemmulate
