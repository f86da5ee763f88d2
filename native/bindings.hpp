// What the Python bindings share. Shapes and types are validated here once more, so that no call from Python can read or
// write outside its arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "anchored.hpp"
#include "digits.hpp"
#include "exactdot.hpp"
#include "limbs.hpp"
#include "pairs.hpp"
#include "product.hpp"
#include "pyints.hpp"
#include "small.hpp"
#include "survey.hpp"
#include "wrapped.hpp"

namespace gemmulate {

namespace nb = nanobind;

using Matrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
using MutableMatrix = nb::ndarray<nb::ndim<2>, nb::device::cpu>;
template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

inline const std::vector<const Isa*>& all_isas() {
  static const std::vector<const Isa*> isas{
      &isa_scalar(),
#ifdef GEMMULATE_X86
      &isa_avx2(), &isa_avxvnni(), &isa_avx512vnni(),
#endif
  };
  return isas;
}

inline const Isa& find_isa(const std::string& name) {
  for (const Isa* isa : all_isas())
    if (name == isa->name) {
      require(isa->supported(), "this processor lacks the instruction set asked for");
      return *isa;
    }
  throw std::invalid_argument("unknown instruction set: " + name);
}

inline Type type_of(nb::dlpack::dtype t) {
  if (t.lanes == 1) {
    const bool is_int = t.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int);
    const bool is_uint = t.code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt);
    if (t.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float)) {
      if (t.bits == 64) return Type::f64;
      if (t.bits == 32) return Type::f32;
    } else if (is_int || is_uint) {
      switch (t.bits) {
        case 8: return is_int ? Type::i8 : Type::u8;
        case 16: return is_int ? Type::i16 : Type::u16;
        case 32: return is_int ? Type::i32 : Type::u32;
        case 64: return is_int ? Type::i64 : Type::u64;
      }
    }
  }
  throw std::invalid_argument("unsupported element type");
}

template <class Array>
View view_of(const Array& x) {
  return {x.data(),
          type_of(x.dtype()),
          static_cast<int64_t>(x.shape(0)),
          static_cast<int64_t>(x.shape(1)),
          x.stride(0),
          x.stride(1)};
}

// Runs work(poll) without the GIL; signals and the progress callback are served on the calling thread.
template <class Work>
auto run(nb::object progress, const Work& work) {
  const Poll poll = [&progress](int64_t done, int64_t total) {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) return false;
    if (progress.is_none()) return true;
    PyObject* result = PyObject_CallFunction(progress.ptr(), "LL", static_cast<long long>(done),
                                             static_cast<long long>(total));
    Py_XDECREF(result);
    return result != nullptr;
  };
  try {
    const nb::gil_scoped_release release;
    return work(poll);
  } catch (const Cancelled&) {
    throw nb::python_error();
  }
}

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T> values) {
  auto* owner = new std::vector<T>(std::move(values));
  const nb::capsule capsule(owner, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owner->data(), {owner->size()}, capsule);
}

struct Moduli {
  ModuliTable table;
};

struct Crt {
  std::vector<double> weight, inverse, product;
  std::vector<Modulus> modulus;
  CrtTable table() const {
    return {static_cast<int>(inverse.size()), static_cast<int>(product.size()), weight.data(), inverse.data(),
            product.data()};
  }
};

inline std::vector<Modulus> make_modulus(const Vector<int32_t>& moduli) {
  std::vector<Modulus> r;
  for (size_t l = 0; l < moduli.shape(0); ++l) {
    const int32_t m = moduli(l);
    require(m >= 2 && m <= 256, "a modulus lies in [2, 256]");
    int32_t fold = 65536 % m;
    if (fold > m / 2) fold -= m;
    r.push_back({fold, static_cast<float>(m), 1.0f / static_cast<float>(m)});
  }
  return r;
}

inline DigitSystem make_digits(uint64_t modulus, int bits, int digits) {
  require((bits == 8 && (digits == 1 || digits == 2)) || (bits == 7 && (digits == 2 || digits == 3)),
          "one or two digits of 8 bits, two or three of 7 bits");
  require(modulus >= 2 && modulus <= uint64_t{1} << (bits * digits), "the digits hold the modulus");
  return {modulus, bits, digits};
}

inline const int32_t* optional_vector(const std::optional<Vector<int32_t>>& v, int64_t n) {
  if (!v) return nullptr;
  require(static_cast<int64_t>(v->shape(0)) == n, "the inner scaling has one exponent for each step of k");
  return v->data();
}

// The name of a result's format; the 16-bit ones come as uint16, which every NumPy array can be viewed as.
inline Out float_kind(const std::string& format) {
  if (format == "float64") return Out::f64;
  if (format == "float32") return Out::f32;
  if (format == "float16") return Out::f16;
  if (format == "bfloat16") return Out::bf16;
  throw std::invalid_argument("unknown float format: " + format);
}

inline Target make_target(const MutableMatrix& out, Out kind, int64_t m, int64_t n) {
  require(static_cast<int64_t>(out.shape(0)) == m && static_cast<int64_t>(out.shape(1)) == n,
          "the output has another shape than the product");
  const Type type = type_of(out.dtype());
  const Type expected = kind == Out::f64 || kind == Out::pair ? Type::f64
                        : kind == Out::f32 ? Type::f32
                        : kind == Out::f16 || kind == Out::bf16 ? Type::u16
                        : kind == Out::i32 ? Type::i32
                        : kind == Out::u64 ? Type::u64
                                           : Type::i64;
  require(type == expected, "the output has another element type than the product");
  return {kind, out.data(), out.stride(0), out.stride(1)};
}

inline Target make_pair_target(const MutableMatrix& high, const MutableMatrix& low, int64_t m, int64_t n) {
  Target t = make_target(high, Out::pair, m, n);
  const Target l = make_target(low, Out::f64, m, n);
  t.low = static_cast<double*>(l.data);
  t.low_stride_i = l.stride_i;
  t.low_stride_j = l.stride_j;
  return t;
}

inline Out integer_kind(const MutableMatrix& out) {
  switch (type_of(out.dtype())) {
    case Type::i64: return Out::i64;
    case Type::u64: return Out::u64;
    case Type::i32: return Out::i32;
    default: throw std::invalid_argument("an integer product is written as int64, uint64 or int32");
  }
}

inline void match(const Operand& left, const Operand& right) {
  require(left.left && !right.left, "the left operand was packed for the left side, the right one for the right");
  require(left.isa == right.isa, "both operands are packed for one instruction set");
  require(left.depth == right.depth && left.moduli == right.moduli && left.planes == right.planes &&
              left.halved == right.halved,
          "the operands' depths or moduli differ");
}

inline nb::object indices(const std::vector<Index>& list) {
  std::vector<int64_t> flat;
  flat.reserve(2 * list.size());
  for (const Index& e : list) {
    flat.push_back(e.i);
    flat.push_back(e.j);
  }
  return nb::cast(to_numpy(std::move(flat)));
}

// Surveys and packing; products.
void bind_operands(nanobind::module_& m);
void bind_products(nanobind::module_& m);

}  // namespace gemmulate
