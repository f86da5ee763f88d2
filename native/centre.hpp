// Blocks of entries modulo p, of least magnitude.
#pragma once

#include "isa.hpp"
#include "modulo.hpp"

namespace gemmulate {

class Centre {
 public:
  Centre(const Isa& isa, uint64_t p) : isa_(isa), p_(p), modulo_(p) {}

  // out[i] = x[i] mod p, at most p / 2 in magnitude; unsigned entries from 2^63 on come as negative ones.
  void operator()(const int64_t* x, int64_t n, bool is_unsigned, int64_t* out) const {
    if (p_ < uint64_t{1} << 31) return isa_.centre(x, n, static_cast<int64_t>(p_), is_unsigned, out);
    uint64_t any = 0;
    for (int64_t i = 0; is_unsigned && i < n; ++i) any |= static_cast<uint64_t>(x[i]);
    if (!(any >> 63) && isa_.centre_near(x, n, p_, out)) return;
    for (int64_t i = 0; i < n; ++i)
      out[i] = modulo_.centred(is_unsigned ? modulo_(static_cast<uint64_t>(x[i])) : modulo_.of_signed(x[i]));
  }

 private:
  const Isa& isa_;
  uint64_t p_;
  Modulo modulo_;
};

}  // namespace gemmulate
