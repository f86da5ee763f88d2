// A matrix operand as panels of whole numbers or floats, [panel][depth][width]: for kernels that multiply the
// machine's own wide types, where those beat narrow products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>

#include "operand.hpp"

namespace gemmulate {

struct Panels {
  const Isa* isa = nullptr;
  bool left = false;
  int width = 0;
  int item = 0;  // bytes of an element
  int64_t vectors = 0, depth = 0;
  AlignedBytes bytes;

  int64_t panels() const { return (vectors + width - 1) / width; }
  template <class T>
  T* at(int64_t panel, int64_t p) const {
    return reinterpret_cast<T*>(bytes.get()) + (panel * depth + p) * width;
  }
};

inline Panels make_panels(const Isa& isa, bool left, int width, int item, int64_t vectors, int64_t depth) {
  Panels o{&isa, left, width, item, vectors, depth, {}};
  const auto cells = static_cast<unsigned __int128>(o.panels()) * static_cast<unsigned __int128>(depth) *
                     static_cast<unsigned>(width * item);
  if (cells > static_cast<unsigned __int128>(std::numeric_limits<int64_t>::max() / 2)) throw std::bad_alloc();
  o.bytes = AlignedBytes(static_cast<size_t>(cells));
  return o;
}

// Tiles of a product of panels: body(first row, rows, first column, columns), all within the matrices.
struct PanelTiles {
  int64_t rows, columns, across, count;

  PanelTiles(const Panels& left, const Panels& right, int threads) {
    // The C tile and one depth block of both operands (kPanelDepth) stay in a 1 MiB second-level cache.
    rows = 96 / left.width * left.width;
    columns = std::max<int64_t>(right.width, 128 / right.width * right.width);
    const auto tiles = [&] {
      return ((left.vectors + rows - 1) / rows) * ((right.vectors + columns - 1) / columns);
    };
    const int64_t wanted = threads > 1 ? 4 * threads : 1;
    while (tiles() < wanted && rows > left.width) rows = std::max<int64_t>(left.width, rows / 2 / left.width * left.width);
    while (tiles() < wanted && columns > right.width)
      columns = std::max<int64_t>(right.width, columns / 2 / right.width * right.width);
    across = (right.vectors + columns - 1) / columns;
    count = tiles();
  }
};

// Depth of one block: of 128 columns and of 96 rows it takes 0.45 MiB, half of a second-level cache.
inline constexpr int64_t kPanelDepth = 256;

}  // namespace gemmulate
