// Products of integers wider than the residue system: limbs by limbs, residue by residue.
#pragma once

#include <cstdint>
#include <vector>

#include "operand.hpp"
#include "product.hpp"

namespace gemmulate {

// Writes sum_ij left[i] right[j] 2^(limb_bits (i + j)) to out[m][n][words], two's complement, least word first. Every
// coefficient sum_{i+j=s} left[i] right[j] lies in the window of the residue system. tables[s] is the CRT table of
// coefficient s, its weights and product times 2^(limb_bits s mod 40): its limbs then fall on digits of 40 bits.
void multiply_limbs(const std::vector<const Operand*>& left, const std::vector<const Operand*>& right, int limb_bits,
                    const std::vector<CrtTable>& tables, const std::vector<Modulus>& modulus, uint64_t* out,
                    int64_t words, int threads, const Poll& poll);

}  // namespace gemmulate
