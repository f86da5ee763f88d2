// Pairs of float64, value = high + low: what a scheme asks of them before it chooses bits and moduli.
#pragma once

#include <cstdint>
#include <vector>

#include "operand.hpp"

namespace gemmulate {

// Scan and norms (survey.hpp) of a pair in one pass over blocks that stay in cache. top, sum and square are those of
// high, lsb the lowest set bit of either part; each with the exponent inner[p] added, or none where inner is null.
struct PairSurvey {
  std::vector<int32_t> top, lsb;
  std::vector<uint8_t> special;
  std::vector<uint64_t> sum, square;
};
PairSurvey survey_pairs(const Isa& isa, const View& high, const View& low, const int32_t* inner, int threads,
                        const Poll& poll);

}  // namespace gemmulate
