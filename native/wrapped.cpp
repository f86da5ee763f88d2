#include "wrapped.hpp"

#include <atomic>
#include <vector>

#include "bigint.hpp"
#include "dispatch.hpp"

namespace gemmulate {
namespace {

template <class T>
const WrapKernel<T>& kernel(const Isa& isa) {
  if constexpr (sizeof(T) == 8)
    return isa.wrap64;
  else
    return isa.wrap32;
}

template <class T>
Panels pack(const Isa& isa, bool left, const View& x, int threads, const Poll& poll) {
  const int width = left ? kernel<T>(isa).mr : kernel<T>(isa).nr;
  Panels o = make_panels(isa, left, width, sizeof(T), x.vectors, x.depth);
  const double ns = static_cast<double>(x.vectors) * static_cast<double>(x.depth);
  parallel_for(o.panels(), useful_threads(ns, threads), poll, [&](int64_t panel) {
    const int64_t v0 = panel * width, nv = std::min<int64_t>(width, x.vectors - v0);
    dispatch_integer(x.type, [&]<class S>(S) {
      const S* base = static_cast<const S*>(x.data) + v0 * x.stride_v;
      for (int64_t p = 0; p < x.depth; ++p) {
        if (p % 65536 == 0) Loop::checkpoint();
        T* out = o.at<T>(panel, p);
        const S* in = base + p * x.stride_k;
        for (int64_t v = 0; v < nv; ++v) out[v] = static_cast<T>(in[v * x.stride_v]);
        for (int64_t v = nv; v < width; ++v) out[v] = 0;
      }
    });
  });
  return o;
}

template <class T>
int multiply(const Panels& left, const Panels& right, const WrappedTarget& target, int threads, const Poll& poll) {
  const WrapKernel<T>& run = kernel<T>(*left.isa);
  // About 20 ps for a multiply-add of the wide types.
  const double work = static_cast<double>(left.vectors) * static_cast<double>(right.vectors) *
                      static_cast<double>(left.depth);
  threads = useful_threads(0.02 * work, threads);
  const PanelTiles tiles(left, right, threads);
  std::atomic<T> used{0};
  parallel_for(tiles.count, threads, poll, [&](int64_t index) {
    thread_local std::vector<T> tile;
    const int64_t i0 = index / tiles.across * tiles.rows, j0 = index % tiles.across * tiles.columns;
    const int64_t rows = std::min(tiles.rows, left.vectors - i0), columns = std::min(tiles.columns, right.vectors - j0);
    tile.assign(static_cast<size_t>(tiles.rows * tiles.columns), 0);
    for (int64_t p = 0; p < left.depth; p += kPanelDepth) {
      Loop::checkpoint();
      const int64_t depth = std::min(kPanelDepth, left.depth - p);
      for (int64_t j = 0; j < columns; j += run.nr)
        for (int64_t i = 0; i < rows; i += run.mr)
          run.multiply(left.at<T>((i0 + i) / run.mr, p), right.at<T>((j0 + j) / run.nr, p), depth,
                       tile.data() + i * tiles.columns + j, tiles.columns);
    }
    T ones = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const T* row = tile.data() + i * tiles.columns;
      T* to = static_cast<T*>(target.data) + (i0 + i) * target.stride_i + j0 * target.stride_j;
      for (int64_t j = 0; j < columns; ++j) {
        to[j * target.stride_j] = row[j];
        ones |= row[j] ^ (!target.is_unsigned && row[j] >> (8 * sizeof(T) - 1) ? ~T{0} : T{0});
      }
    }
    used.fetch_or(ones, std::memory_order_relaxed);
  });
  return bit_length(uint64_t{used.load()}) + 1;
}

}  // namespace

Panels pack_wrapped(const Isa& isa, bool left, const View& x, int item, int threads, const Poll& poll) {
  return item == 8 ? pack<uint64_t>(isa, left, x, threads, poll) : pack<uint32_t>(isa, left, x, threads, poll);
}

int multiply_wrapped(const Panels& left, const Panels& right, const WrappedTarget& target, int threads,
                     const Poll& poll) {
  return left.item == 8 ? multiply<uint64_t>(left, right, target, threads, poll)
                        : multiply<uint32_t>(left, right, target, threads, poll);
}

}  // namespace gemmulate
