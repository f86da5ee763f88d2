// Tiles of a product of packed residue planes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "operand.hpp"

namespace gemmulate {

// Blocking. A tile of about 96 x 128 with 2,048 of depth keeps both panels of one plane (0.45 MiB) in a 1 MiB
// second-level cache; one right micro-panel (32 x 2,048 = 64 KiB) streams from there at 15 of 64 bytes a cycle.
constexpr int64_t kTileRows = 96, kTileColumns = 128, kTileDepth = 2048;

struct Tiles {
  int64_t rows, columns;  // of a full tile
  int64_t across, count;
};

inline Tiles make_tiles(const Operand& left, const Operand& right, int threads) {
  const int64_t mr = left.width, nr = right.width;
  // Halved operands: four tiles of the result at once.
  Tiles t{kTileRows / mr * mr, (left.halved ? kTileColumns / 2 : kTileColumns) / nr * nr, 0, 0};
  const auto count = [&] {
    return ((left.span + t.rows - 1) / t.rows) * ((right.span + t.columns - 1) / t.columns);
  };
  // Small products: smaller tiles, so that every thread has some.
  while (count() < 4 * threads && t.rows > mr) t.rows = std::max(mr, t.rows / 2 / mr * mr);
  while (count() < 4 * threads && t.columns > nr) t.columns = std::max(nr, t.columns / 2 / nr * nr);
  t.across = (right.span + t.columns - 1) / t.columns;
  t.count = count();
  return t;
}

// c[rows][columns] (+)= plane l of the left times plane r of the right over depth [k0, k1) (in units of 4); whole
// micro-panels.
inline void multiply_planes(const Operand& left, int l, const Operand& right, int r, int64_t i0, int64_t rows,
                            int64_t j0, int64_t columns, int64_t k0, int64_t k1, int32_t* c, int64_t ldc,
                            bool accumulate) {
  const Isa& isa = *left.isa;
  for (int64_t q0 = k0; q0 < k1; q0 += kTileDepth / 4) {
    const int64_t k4 = std::min(kTileDepth / 4, k1 - q0);
    Loop::checkpoint();
    for (int64_t j = 0; j < columns; j += isa.nr) {
      const auto* b = reinterpret_cast<const int8_t*>(right.plane((j0 + j) / isa.nr, r)) + q0 * isa.nr * 4;
      for (int64_t i = 0; i < rows; i += isa.mr)
        isa.igemm(left.plane((i0 + i) / isa.mr, l) + q0 * isa.mr * 4, b, k4, c + i * ldc + j, ldc,
                  accumulate || q0 > k0);
    }
  }
}

// The same of plane l on both sides.
inline void multiply_plane(const Operand& left, const Operand& right, int l, int64_t i0, int64_t rows, int64_t j0,
                    int64_t columns, int64_t k0, int64_t k1, int32_t* c, int64_t ldc, bool accumulate) {
  multiply_planes(left, l, right, l, i0, rows, j0, columns, k0, k1, c, ldc, accumulate);
}

struct Region {
  int64_t i0, j0, rows, columns;      // valid elements
  int64_t padded_rows, padded_columns;  // whole micro-panels
};

// Residues y of plane l's product over a whole tile (padding included); sums is scratch of the tile's size.
inline void plane_residues(const Operand& left, const Operand& right, int l, const Region& t, const Modulus& m,
                           int32_t* sums, int8_t* y) {
  const int64_t cells = t.padded_rows * t.padded_columns;
  for (int64_t k0 = 0;; k0 += kFoldDepth / 4) {
    const int64_t k1 = std::min(left.k4, k0 + kFoldDepth / 4);
    multiply_plane(left, right, l, t.i0, t.padded_rows, t.j0, t.padded_columns, k0, k1, sums, t.padded_columns, k0 > 0);
    left.isa->residues.reduce(sums, cells, m, y);
    if (k1 == left.k4) break;
    std::copy(y, y + cells, sums);  // the residue carries the sum so far into the next part
  }
}

// body(region, thread) for each tile of the product.
template <class Body>
void for_tiles(const Operand& left, const Operand& right, int threads, const Poll& poll, const Body& body) {
  // About 3 ps for a multiply-add, 3 ns to put an element together.
  const double cells = static_cast<double>(left.vectors) * static_cast<double>(right.vectors);
  threads = useful_threads(cells * (0.003 * static_cast<double>(left.depth) * left.planes + 3.0), threads);
  const Tiles t = make_tiles(left, right, threads);
  const auto padded = [](int64_t n, int64_t width) { return (n + width - 1) / width * width; };
  parallel_for(t.count, threads, poll, [&](int64_t index) {
    Region r;
    r.i0 = index / t.across * t.rows;
    r.j0 = index % t.across * t.columns;
    r.rows = std::min(t.rows, left.span - r.i0);
    r.columns = std::min(t.columns, right.span - r.j0);
    r.padded_rows = padded(r.rows, left.width);
    r.padded_columns = padded(r.columns, right.width);
    body(r);
  });
}

}  // namespace gemmulate
