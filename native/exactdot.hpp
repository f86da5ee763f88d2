// Correctly rounded dot products of floats by an exact long accumulator.
#pragma once

#include <cstdint>

#include "operand.hpp"
#include "product.hpp"

namespace gemmulate {

// For each index: out = the correctly rounded dot product of row i of a and column j of b (finite entries only;
// vectors with others give an unspecified value), rounded to the target's format. An exact zero is +0 unless every
// product is -0 (of a pair always +0).
void exact_dots(const View& a, const View& b, const Index* index, int64_t count, const Target& target, int threads,
                const Poll& poll);

// Gives -0 to the elements that are +0 although every one of their products is -0 (k >= 1).
void fix_negative_zeros(const View& a, const View& b, const Target& target, int threads, const Poll& poll);

}  // namespace gemmulate
