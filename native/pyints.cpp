#include "pyints.hpp"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace nb = nanobind;

namespace gemmulate {
namespace {

// CPython keeps an int as its sign and digits of 30 bits, least first. Reading them where they lie takes a nanosecond a
// digit; _PyLong_AsByteArray goes byte by byte.
static_assert(PyLong_SHIFT == 30, "ints of 15-bit digits exist on 32-bit systems only");

struct Digits {
  const digit* at;
  int64_t count;
  bool negative;
};

Digits digits_of(PyObject* value) {
  const auto* v = reinterpret_cast<const PyLongObject*>(value);
#if PY_VERSION_HEX >= 0x030C0000
  const auto tag = v->long_value.lv_tag;  // count << 3, sign in two bits: 0 positive, 1 zero, 2 negative
  return {v->long_value.ob_digit, static_cast<int64_t>(tag >> 3), (tag & 3) == 2};
#else
  const Py_ssize_t size = Py_SIZE(value);
  return {v->ob_digit, size < 0 ? -size : size, size < 0};
#endif
}

bool larger(const Digits& a, const Digits& b) {
  if (a.count != b.count) return a.count > b.count;
  for (int64_t i = a.count - 1; i >= 0; --i)
    if (a.at[i] != b.at[i]) return a.at[i] > b.at[i];
  return false;
}

void serve_signals(int64_t i) {
  if (i % (1 << 16) == 0 && PyErr_CheckSignals() != 0) throw nb::python_error();
}

template <class T, class... Shape>
auto owned(T* data, Shape... shape) {
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<sizeof...(Shape)>>(data, {static_cast<size_t>(shape)...}, owner);
}

// (least, largest) of the ints and 0; None where one is not exactly an int.
nb::object bounds(const nb::list& values) {
  PyObject *least = nullptr, *most = nullptr;
  const auto n = static_cast<int64_t>(values.size());
  for (int64_t i = 0; i < n; ++i) {
    serve_signals(i);
    PyObject* v = PyList_GET_ITEM(values.ptr(), i);
    if (!PyLong_CheckExact(v)) return nb::none();
    const Digits d = digits_of(v);
    PyObject*& best = d.negative ? least : most;
    if (d.count && (!best || larger(d, digits_of(best)))) best = v;
  }
  const auto or_zero = [](PyObject* v) { return v ? nb::borrow(v) : nb::steal(PyLong_FromLong(0)); };
  return nb::make_tuple(or_zero(least), or_zero(most));
}

const PyObject* checked(PyObject* v) {
  if (!PyLong_CheckExact(v)) throw std::invalid_argument("the list holds something else than ints");
  return v;
}

// Two's complement, `words` words of 32 bits each, cut into balanced limbs of `limb_words` words (the last one takes the
// rest): each a two's complement number by itself, the integer their sum.
nb::object to_words(const nb::list& values, int64_t words, int64_t limb_words, int64_t limbs) {
  if (limb_words < 1 || limbs < 1 || words < limb_words * (limbs - 1) + 1)
    throw std::invalid_argument("at least one word for each limb");
  const auto n = static_cast<int64_t>(values.size());
  // Adding 2^(32 limb_words - 1) to every limb but the last, and taking it off again without borrowing, leaves limbs
  // that are less than half a unit of the next: the second step flips the limb's highest bit.
  std::vector<uint32_t> flip(static_cast<size_t>(words), 0);
  const bool balanced = limbs > 1;
  for (int64_t limb = 1; limb < limbs; ++limb) flip[static_cast<size_t>(limb * limb_words - 1)] = uint32_t{1} << 31;
  auto* out = new uint32_t[static_cast<size_t>(std::max<int64_t>(1, n * words))];
  auto result = owned(out, n, words);
  for (int64_t i = 0; i < n; ++i) {
    serve_signals(i);
    PyObject* v = PyList_GET_ITEM(values.ptr(), i);
    checked(v);
    const Digits d = digits_of(v);
    uint32_t* w = out + i * words;
    uint64_t pending = 0;
    int filled = 0;
    int64_t next = 0;
    for (int64_t k = 0; k < words; ++k) {
      while (filled < 32 && next < d.count) {
        pending |= static_cast<uint64_t>(d.at[next++]) << filled;
        filled += 30;
      }
      w[k] = static_cast<uint32_t>(pending);
      pending >>= 32;
      filled = std::max(0, filled - 32);
    }
    if (next < d.count || pending) throw std::invalid_argument("an int has more bits than the words hold");
    if (d.negative) {
      uint64_t carry = 1;
      for (int64_t k = 0; k < words; ++k) {
        carry += static_cast<uint32_t>(~w[k]);
        w[k] = static_cast<uint32_t>(carry);
        carry >>= 32;
      }
    }
    if ((w[words - 1] >> 31 != 0) != d.negative && d.count)
      throw std::invalid_argument("an int has more bits than the words hold");
    if (balanced) {
      uint64_t carry = 0;
      for (int64_t k = 0; k < words; ++k) {
        carry += static_cast<uint64_t>(w[k]) + flip[static_cast<size_t>(k)];
        w[k] = static_cast<uint32_t>(carry) ^ flip[static_cast<size_t>(k)];
        carry >>= 32;
      }
    }
  }
  return nb::cast(result);
}

nb::object to_int64(const nb::list& values) {
  const auto n = static_cast<int64_t>(values.size());
  auto* out = new int64_t[static_cast<size_t>(std::max<int64_t>(1, n))];
  auto result = owned(out, n);
  for (int64_t i = 0; i < n; ++i) {
    serve_signals(i);
    PyObject* v = PyList_GET_ITEM(values.ptr(), i);
    checked(v);
    out[i] = PyLong_AsLongLong(v);
    if (out[i] == -1 && PyErr_Occurred()) throw nb::python_error();
  }
  return nb::cast(result);
}

// One int from two's complement words; w is overwritten by its magnitude.
PyObject* make_int(uint64_t* w, int64_t words) {
  const bool negative = w[words - 1] >> 63;
  bool small = true;
  for (int64_t k = 1; k < words; ++k) small &= w[k] == static_cast<uint64_t>(static_cast<int64_t>(w[0]) >> 63);
  if (small) return PyLong_FromLongLong(static_cast<int64_t>(w[0]));
#if PY_VERSION_HEX >= 0x030D0000
  return PyLong_FromNativeBytes(w, static_cast<size_t>(words) * 8, Py_ASNATIVEBYTES_LITTLE_ENDIAN);
#else
  if (negative) {
    uint64_t carry = 1;
    for (int64_t k = 0; k < words; ++k) {
      w[k] = ~w[k] + carry;
      carry = carry && w[k] == 0;
    }
  }
  int64_t top = words - 1;
  while (w[top] == 0) --top;
  const int64_t bits = 64 * top + 64 - std::countl_zero(w[top]), count = (bits + 29) / 30;
  PyLongObject* v = _PyLong_New(count);
  if (!v) return nullptr;
#if PY_VERSION_HEX >= 0x030C0000
  v->long_value.lv_tag = static_cast<uintptr_t>(count) << 3 | (negative ? 2 : 0);
  digit* to = v->long_value.ob_digit;
#else
  Py_SET_SIZE(reinterpret_cast<PyObject*>(v), negative ? -count : count);
  digit* to = v->ob_digit;
#endif
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = 30 * i / 64, shift = 30 * i % 64;
    uint64_t part = w[at] >> shift;
    if (shift > 34 && at < top) part |= w[at + 1] << (64 - shift);
    to[i] = static_cast<digit>(part & ((uint64_t{1} << 30) - 1));
  }
  return reinterpret_cast<PyObject*>(v);
#endif
}

nb::object from_words(nb::ndarray<const uint64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> x) {
  const auto n = static_cast<int64_t>(x.shape(0)), words = static_cast<int64_t>(x.shape(1));
  if (words < 1) throw std::invalid_argument("at least one word");
  nb::object list = nb::steal(PyList_New(n));
  if (!list.is_valid()) throw nb::python_error();
  std::vector<uint64_t> w(static_cast<size_t>(words));
  for (int64_t i = 0; i < n; ++i) {
    serve_signals(i);
    std::copy_n(x.data() + i * words, words, w.data());
    PyObject* v = make_int(w.data(), words);
    if (!v) throw nb::python_error();
    PyList_SET_ITEM(list.ptr(), i, v);
  }
  return list;
}

}  // namespace

void bind_python_ints(nb::module_& m) {
  m.def("int_bounds", &bounds, nb::arg("values"));
  m.def("ints_to_words", &to_words, nb::arg("values"), nb::arg("words"), nb::arg("limb_words"), nb::arg("limbs"));
  m.def("ints_to_int64", &to_int64, nb::arg("values"));
  m.def("words_to_ints", &from_words, nb::arg("words"));
}

}  // namespace gemmulate
