// Python bindings of the native core. Shapes and types are validated here once more, so that no call from Python
// can read or write outside its arrays.
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
#include "exactdot.hpp"
#include "limbs.hpp"
#include "pairs.hpp"
#include "product.hpp"
#include "pyints.hpp"
#include "survey.hpp"
#include "wrapped.hpp"

namespace nb = nanobind;
using namespace gemmulate;

namespace {

using Matrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
using MutableMatrix = nb::ndarray<nb::ndim<2>, nb::device::cpu>;
template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

const std::vector<const Isa*>& all_isas() {
  static const std::vector<const Isa*> isas{
      &isa_scalar(),
#ifdef GEMMULATE_X86
      &isa_avx2(), &isa_avxvnni(), &isa_avx512vnni(),
#endif
  };
  return isas;
}

const Isa& find_isa(const std::string& name) {
  for (const Isa* isa : all_isas())
    if (name == isa->name) {
      require(isa->supported(), "this processor lacks the instruction set asked for");
      return *isa;
    }
  throw std::invalid_argument("unknown instruction set: " + name);
}

Type type_of(nb::dlpack::dtype t) {
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

std::vector<Modulus> make_modulus(const Vector<int32_t>& moduli) {
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

const int32_t* optional_vector(const std::optional<Vector<int32_t>>& v, int64_t n) {
  if (!v) return nullptr;
  require(static_cast<int64_t>(v->shape(0)) == n, "the inner scaling has one exponent for each step of k");
  return v->data();
}

// The name of a result's format; the 16-bit ones come as uint16, which every NumPy array can be viewed as.
Out float_kind(const std::string& format) {
  if (format == "float64") return Out::f64;
  if (format == "float32") return Out::f32;
  if (format == "float16") return Out::f16;
  if (format == "bfloat16") return Out::bf16;
  throw std::invalid_argument("unknown float format: " + format);
}

Target make_target(const MutableMatrix& out, Out kind, int64_t m, int64_t n) {
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

Target make_pair_target(const MutableMatrix& high, const MutableMatrix& low, int64_t m, int64_t n) {
  Target t = make_target(high, Out::pair, m, n);
  const Target l = make_target(low, Out::f64, m, n);
  t.low = static_cast<double*>(l.data);
  t.low_stride_i = l.stride_i;
  t.low_stride_j = l.stride_j;
  return t;
}

Out integer_kind(const MutableMatrix& out) {
  switch (type_of(out.dtype())) {
    case Type::i64: return Out::i64;
    case Type::u64: return Out::u64;
    case Type::i32: return Out::i32;
    default: throw std::invalid_argument("an integer product is written as int64, uint64 or int32");
  }
}

void match(const Operand& left, const Operand& right) {
  require(left.left && !right.left, "the left operand was packed for the left side, the right one for the right");
  require(left.isa == right.isa, "both operands are packed for one instruction set");
  require(left.depth == right.depth && left.moduli == right.moduli && left.planes == right.planes &&
              left.halved == right.halved,
          "the operands' depths or moduli differ");
}

nb::object indices(const std::vector<Index>& list) {
  std::vector<int64_t> flat;
  flat.reserve(2 * list.size());
  for (const Index& e : list) {
    flat.push_back(e.i);
    flat.push_back(e.j);
  }
  return nb::cast(to_numpy(std::move(flat)));
}

}  // namespace

NB_MODULE(_native, m) {
  m.attr("__doc__") = "gemmulate's native core (private; use gemmulate.engines)";

  m.def("instruction_sets", [] {
    std::vector<std::pair<std::string, bool>> r;
    for (const Isa* isa : all_isas()) r.emplace_back(isa->name, isa->supported());
    return r;
  });
  m.def("default_threads", [] { return omp_get_max_threads(); });

  nb::class_<Operand>(m, "Operand")
      .def_prop_ro("vectors", [](const Operand& o) { return o.vectors; })
      .def_prop_ro("depth", [](const Operand& o) { return o.depth; })
      .def_prop_ro("planes", [](const Operand& o) { return o.planes; })
      .def_prop_ro("nbytes", [](const Operand& o) { return o.bytes.size(); })
      .def_prop_ro("rounded", [](const Operand& o) {
        int64_t sum = 0;
        for (const int32_t c : o.inexact) sum += c;
        return sum;
      });

  nb::class_<Panels>(m, "Panels")
      .def_prop_ro("nbytes", [](const Panels& o) { return o.bytes.size(); })
      .def_prop_ro("rounded", [](const Panels&) { return 0; });

  nb::class_<AnchoredOperand>(m, "AnchoredOperand")
      .def_prop_ro("nbytes", [](const AnchoredOperand& o) { return o.panels.bytes.size(); })
      .def_prop_ro("rounded", [](const AnchoredOperand&) { return 0; });

  nb::class_<Moduli>(m, "Moduli").def(
      "__init__",
      [](Moduli* self, Vector<int32_t> moduli, Table<float> coef, bool halved) {
        require(coef.shape(0) == moduli.shape(0) && coef.shape(1) >= 1, "coef has one row for each modulus");
        ModuliTable t;
        t.moduli = static_cast<int>(moduli.shape(0));
        t.halved = halved;
        t.digits = static_cast<int>(coef.shape(1));
        t.modulus = make_modulus(moduli);
        t.coef.assign(coef.data(), coef.data() + coef.size());
        new (self) Moduli{std::move(t)};
      },
      nb::arg("moduli"), nb::arg("coef"), nb::arg("halved"));

  nb::class_<Crt>(m, "Crt").def(
      "__init__",
      [](Crt* self, Vector<int32_t> moduli, Table<double> weight, Vector<double> inverse, Vector<double> product) {
        const size_t r = moduli.shape(0), limbs = product.shape(0);
        require(r >= 1 && r <= kMaxModuli && limbs >= 1 && limbs <= kMaxLimbs, "too many moduli");
        require(weight.shape(0) == limbs && weight.shape(1) == r && inverse.shape(0) == r, "CRT tables do not match");
        new (self) Crt{{weight.data(), weight.data() + r * limbs},
                       {inverse.data(), inverse.data() + r},
                       {product.data(), product.data() + limbs},
                       make_modulus(moduli)};
      },
      nb::arg("moduli"), nb::arg("weight"), nb::arg("inverse"), nb::arg("product"));

  m.def("scan", [](const std::string& isa, Matrix x, std::optional<Vector<int32_t>> inner, int threads, nb::object progress) {
    const View v = view_of(x);
    const int32_t* e = optional_vector(inner, v.depth);
    Scan s = run(progress, [&](const Poll& poll) { return scan_floats(find_isa(isa), v, e, threads, poll); });
    return nb::make_tuple(to_numpy(std::move(s.top)), to_numpy(std::move(s.lsb)), to_numpy(std::move(s.special)));
  }, nb::arg("isa"), nb::arg("x"), nb::arg("inner").none(), nb::arg("threads"), nb::arg("progress").none());

  m.def("norms", [](const std::string& isa, Matrix x, Vector<int32_t> top, std::optional<Vector<int32_t>> inner, int threads,
                    nb::object progress) {
    const View v = view_of(x);
    require(static_cast<int64_t>(top.shape(0)) == v.vectors, "one exponent for each vector");
    const int32_t* e = optional_vector(inner, v.depth);
    Norms s = run(progress, [&](const Poll& poll) { return norms_floats(find_isa(isa), v, top.data(), e, threads, poll); });
    return nb::make_tuple(to_numpy(std::move(s.sum)), to_numpy(std::move(s.square)), to_numpy(std::move(s.peak)));
  }, nb::arg("isa"), nb::arg("x"), nb::arg("top"), nb::arg("inner").none(), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("depths", [](Matrix x, Vector<int32_t> top, std::optional<Vector<int32_t>> inner, int bins, int threads,
                     nb::object progress) {
    const View v = view_of(x);
    require(static_cast<int64_t>(top.shape(0)) == v.vectors && bins > 0, "one exponent for each vector");
    const int32_t* e = optional_vector(inner, v.depth);
    return to_numpy(
        run(progress, [&](const Poll& poll) { return depths_floats(v, top.data(), e, bins, threads, poll); }));
  }, nb::arg("x"), nb::arg("top"), nb::arg("inner").none(), nb::arg("bins"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("integer_range", [](Matrix x, int threads, nb::object progress) {
    const View v = view_of(x);
    const Range r = run(progress, [&](const Poll& poll) { return range_integers(v, threads, poll); });
    return nb::make_tuple(r.any ? r.min : 0, r.max);
  }, nb::arg("x"), nb::arg("threads"), nb::arg("progress").none());

  m.def("centre_integers", [](Matrix x, uint64_t modulus, MutableMatrix out, int threads, nb::object progress) {
    const View v = view_of(x);
    require(v.type != Type::f64 && v.type != Type::f32 && modulus >= 2, "integers, and a modulus of 2 or more");
    const View t = view_of(out);
    require(t.vectors == v.vectors && t.depth == v.depth && t.stride_v == v.depth && (t.stride_k == 1 || v.depth <= 1),
            "the output is contiguous and of the operand's shape");
    const int bits = t.type == Type::i8 ? 8 : t.type == Type::i16 ? 16 : t.type == Type::i32 ? 32 : 64;
    require(t.type == Type::i64 || (bits < 64 && modulus >> bits == 0), "the output holds p / 2");
    run(progress, [&](const Poll& poll) {
      centre_integers(v, modulus, out.data(), t.type, threads, poll);
      return 0;
    });
  }, nb::arg("x"), nb::arg("modulus"), nb::arg("out"), nb::arg("threads"), nb::arg("progress").none());

  m.def("pack_floats", [](const std::string& isa, bool left, Matrix x, Vector<int32_t> shift,
                          std::optional<Vector<int32_t>> inner, const Moduli& moduli, bool count, int threads,
                          nb::object progress) {
    const View v = view_of(x);
    require(static_cast<int64_t>(shift.shape(0)) == v.vectors, "one exponent for each vector");
    const int32_t* e = optional_vector(inner, v.depth);
    return run(progress, [&](const Poll& poll) {
      return pack_floats(find_isa(isa), left, v, shift.data(), e, moduli.table, count, threads, poll);
    });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("x"), nb::arg("shift"), nb::arg("inner").none(), nb::arg("moduli"),
     nb::arg("count"), nb::arg("threads"), nb::arg("progress").none());

  m.def("pack_pairs", [](const std::string& isa, bool left, Matrix high, Matrix low, Vector<int32_t> shift,
                         std::optional<Vector<int32_t>> inner, const Moduli& moduli, int threads,
                         nb::object progress) {
    const View h = view_of(high), l = view_of(low);
    require(h.type == Type::f64 && l.type == Type::f64 && h.vectors == l.vectors && h.depth == l.depth,
            "a pair has two float64 matrices of one shape");
    require(static_cast<int64_t>(shift.shape(0)) == h.vectors, "one exponent for each vector");
    const int32_t* e = optional_vector(inner, h.depth);
    return run(progress, [&](const Poll& poll) {
      return pack_pairs(find_isa(isa), left, h, l, shift.data(), e, moduli.table, threads, poll);
    });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("high"), nb::arg("low"), nb::arg("shift"), nb::arg("inner").none(),
     nb::arg("moduli"), nb::arg("threads"), nb::arg("progress").none());

  m.def("survey_pairs", [](const std::string& isa, Matrix high, Matrix low, std::optional<Vector<int32_t>> inner,
                           int threads, nb::object progress) {
    const View h = view_of(high), l = view_of(low);
    require(h.type == Type::f64 && l.type == Type::f64 && h.vectors == l.vectors && h.depth == l.depth,
            "a pair has two float64 matrices of one shape");
    const int32_t* e = optional_vector(inner, h.depth);
    PairSurvey s = run(progress, [&](const Poll& poll) { return survey_pairs(find_isa(isa), h, l, e, threads, poll); });
    return nb::make_tuple(to_numpy(std::move(s.top)), to_numpy(std::move(s.lsb)), to_numpy(std::move(s.special)),
                          to_numpy(std::move(s.sum)), to_numpy(std::move(s.square)));
  }, nb::arg("isa"), nb::arg("high"), nb::arg("low"), nb::arg("inner").none(), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("multiply_pairs", [](const Operand& left, const Operand& right, const Crt& crt, Vector<int32_t> rows,
                             Vector<int32_t> columns, MutableMatrix high, MutableMatrix low, int threads,
                             nb::object progress) {
    match(left, right);
    require(static_cast<int64_t>(crt.inverse.size()) == left.planes, "the operands' moduli and the CRT's differ");
    require(static_cast<int64_t>(rows.shape(0)) == left.vectors &&
                static_cast<int64_t>(columns.shape(0)) == right.vectors,
            "one exponent for each row and column");
    const Target t = make_pair_target(high, low, left.vectors, right.vectors);
    const Recombination r{crt.table(), crt.modulus, rows.data(), columns.data()};
    return run(progress, [&](const Poll& poll) { return multiply_residues(left, right, r, t, threads, poll); }).zeros;
  }, nb::arg("left"), nb::arg("right"), nb::arg("crt"), nb::arg("row_exponent"), nb::arg("column_exponent"),
     nb::arg("high"), nb::arg("low"), nb::arg("threads"), nb::arg("progress").none());

  m.def("pack_integers", [](const std::string& isa, bool left, Matrix x, const Moduli& moduli, int threads,
                            nb::object progress) {
    const View v = view_of(x);
    return run(progress, [&](const Poll& poll) {
      return pack_integers(find_isa(isa), left, v, moduli.table, threads, poll);
    });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("x"), nb::arg("moduli"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("pack_words", [](const std::string& isa, bool left,
                         nb::ndarray<const uint32_t, nb::ndim<3>, nb::device::cpu> x, const Moduli& moduli,
                         int threads, nb::object progress) {
    const auto words = static_cast<int64_t>(x.shape(2));
    require(words >= 1 && (x.stride(2) == 1 || words == 1), "words of one element lie side by side");
    const WordView v{x.data(), static_cast<int64_t>(x.shape(0)), static_cast<int64_t>(x.shape(1)), words, x.stride(0),
                     x.stride(1)};
    return run(progress, [&](const Poll& poll) {
      return pack_words(find_isa(isa), left, v, moduli.table, threads, poll);
    });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("x"), nb::arg("moduli"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("pack_direct", [](const std::string& isa, bool left, Matrix x, int64_t zero_point, int threads,
                          nb::object progress) {
    const View v = view_of(x);
    return run(progress, [&](const Poll& poll) {
      return pack_direct(find_isa(isa), left, v, zero_point, threads, poll);
    });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("x"), nb::arg("zero_point"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("pack_magnitudes", [](const std::string& isa, bool left, Matrix x, Vector<int32_t> top,
                              std::optional<Vector<int32_t>> inner, int threads, nb::object progress) {
    const View v = view_of(x);
    require(static_cast<int64_t>(top.shape(0)) == v.vectors, "one exponent for each vector");
    const int32_t* e = optional_vector(inner, v.depth);
    return run(progress, [&](const Poll& poll) {
      return pack_magnitudes(find_isa(isa), left, v, top.data(), e, threads, poll);
    });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("x"), nb::arg("top"), nb::arg("inner").none(), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("multiply_floats", [](const Operand& left, const Operand& right, const Crt& crt, Vector<int32_t> rows,
                              Vector<int32_t> columns, bool check, int bits_left, int bits_right, MutableMatrix out,
                              const std::string& format, int threads, nb::object progress) {
    match(left, right);
    require(static_cast<int64_t>(crt.inverse.size()) == left.planes, "the operands' moduli and the CRT's differ");
    require(static_cast<int64_t>(rows.shape(0)) == left.vectors &&
                static_cast<int64_t>(columns.shape(0)) == right.vectors,
            "one exponent for each row and column");
    require(!check || (left.inexact.size() == rows.shape(0) && right.inexact.size() == columns.shape(0)),
            "the operands were packed without counting roundings");
    const Target t = make_target(out, float_kind(format), left.vectors, right.vectors);
    Recombination r{crt.table(), crt.modulus, rows.data(), columns.data(), check, bits_left, bits_right};
    const Outcome o = run(progress, [&](const Poll& poll) {
      return multiply_residues(left, right, r, t, threads, poll);
    });
    return nb::make_tuple(indices(o.uncertain), o.zeros);
  }, nb::arg("left"), nb::arg("right"), nb::arg("crt"), nb::arg("row_exponent"), nb::arg("column_exponent"),
     nb::arg("check"), nb::arg("bits_left"), nb::arg("bits_right"), nb::arg("out"), nb::arg("format"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("multiply_integers", [](const Operand& left, const Operand& right, const Crt& crt, MutableMatrix out,
                                int threads, nb::object progress) {
    match(left, right);
    require(static_cast<int64_t>(crt.inverse.size()) == left.planes, "the operands' moduli and the CRT's differ");
    const Out kind = integer_kind(out);
    require(kind != Out::i32, "a residue product is written as int64 or uint64");
    const Target t = make_target(out, kind, left.vectors, right.vectors);
    const Recombination r{crt.table(), crt.modulus};
    return run(progress, [&](const Poll& poll) { return multiply_residues(left, right, r, t, threads, poll); }).bits;
  }, nb::arg("left"), nb::arg("right"), nb::arg("crt"), nb::arg("out"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("multiply_modular", [](const Operand& left, const Operand& right, const Crt& crt, uint64_t modulus,
                               MutableMatrix out, int threads, nb::object progress) {
    match(left, right);
    require(static_cast<int64_t>(crt.inverse.size()) == left.planes, "the operands' moduli and the CRT's differ");
    require(modulus >= 2 && modulus <= uint64_t{1} << 63, "the modulus lies in [2, 2^63]");
    Target t = make_target(out, Out::mod, left.vectors, right.vectors);
    t.modulus = modulus;
    const Recombination r{crt.table(), crt.modulus};
    run(progress, [&](const Poll& poll) { return multiply_residues(left, right, r, t, threads, poll); });
  }, nb::arg("left"), nb::arg("right"), nb::arg("crt"), nb::arg("modulus"), nb::arg("out"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("multiply_words", [](const Operand& left, const Operand& right, const Crt& crt,
                             nb::ndarray<uint64_t, nb::ndim<3>, nb::c_contig, nb::device::cpu> out, int threads,
                             nb::object progress) {
    match(left, right);
    require(static_cast<int64_t>(crt.inverse.size()) == left.planes, "the operands' moduli and the CRT's differ");
    require(static_cast<int64_t>(out.shape(0)) == left.vectors &&
                static_cast<int64_t>(out.shape(1)) == right.vectors && out.shape(2) >= 1 && out.shape(2) <= 7,
            "the output has another shape than the product");
    Target t{Out::words, out.data(), static_cast<int64_t>(out.shape(1)), 1, static_cast<int>(out.shape(2))};
    const Recombination r{crt.table(), crt.modulus};
    return run(progress, [&](const Poll& poll) { return multiply_residues(left, right, r, t, threads, poll); }).bits;
  }, nb::arg("left"), nb::arg("right"), nb::arg("crt"), nb::arg("out"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("multiply_limbs", [](const std::vector<Operand*>& left, const std::vector<Operand*>& right, int limb_bits,
                             const std::vector<Crt*>& crt,
                             nb::ndarray<uint64_t, nb::ndim<3>, nb::c_contig, nb::device::cpu> out, int threads,
                             nb::object progress) {
    require(!left.empty() && !right.empty() && crt.size() == left.size() + right.size() - 1 && limb_bits > 0,
            "one CRT table for each coefficient");
    for (const Operand* a : left)
      for (const Operand* b : right) match(*a, *b);
    std::vector<CrtTable> tables;
    for (const Crt* c : crt) {
      require(static_cast<int>(c->inverse.size()) == left[0]->planes, "the operands' moduli and the CRT's differ");
      tables.push_back(c->table());
    }
    for (const Operand* a : left) require(a->vectors == static_cast<int64_t>(out.shape(0)), "as many rows as out");
    for (const Operand* b : right) require(b->vectors == static_cast<int64_t>(out.shape(1)), "as many columns as out");
    const std::vector<const Operand*> a(left.begin(), left.end()), b(right.begin(), right.end());
    run(progress, [&](const Poll& poll) {
      const auto words = static_cast<int64_t>(out.shape(2));
      multiply_limbs(a, b, limb_bits, tables, crt[0]->modulus, out.data(), words, threads, poll);
    });
  }, nb::arg("left"), nb::arg("right"), nb::arg("limb_bits"), nb::arg("crt"), nb::arg("out"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("multiply_direct", [](const Operand& left, const Operand& right, uint64_t modulus, MutableMatrix out,
                              int threads, nb::object progress) {
    match(left, right);
    require(!left.sums.empty() || left.vectors == 0, "the operands were not packed as one plane of bytes");
    require(modulus == 0 || (modulus >= 2 && modulus <= uint64_t{1} << 63), "the modulus lies in [2, 2^63]");
    Target t = make_target(out, modulus ? Out::mod : integer_kind(out), left.vectors, right.vectors);
    t.modulus = modulus;
    return run(progress, [&](const Poll& poll) { return multiply_direct(left, right, t, threads, poll); }).bits;
  }, nb::arg("left"), nb::arg("right"), nb::arg("modulus"), nb::arg("out"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("pack_wrapped", [](const std::string& isa, bool left, Matrix x, int item, int threads, nb::object progress) {
    const View v = view_of(x);
    require(v.type != Type::f64 && v.type != Type::f32 && (item == 4 || item == 8), "integers, modulo 2^32 or 2^64");
    return run(progress, [&](const Poll& poll) { return pack_wrapped(find_isa(isa), left, v, item, threads, poll); });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("x"), nb::arg("item"), nb::arg("threads"), nb::arg("progress").none());

  m.def("multiply_wrapped", [](const Panels& left, const Panels& right, MutableMatrix out, int threads,
                               nb::object progress) {
    require(left.left && !right.left && left.isa == right.isa && left.item == right.item && left.depth == right.depth,
            "the operands do not match");
    const Type type = type_of(out.dtype());
    require(left.item == 8 ? type == Type::i64 || type == Type::u64 : type == Type::i32 || type == Type::u32,
            "the output has another element type than the product");
    require(static_cast<int64_t>(out.shape(0)) == left.vectors && static_cast<int64_t>(out.shape(1)) == right.vectors,
            "the output has another shape than the product");
    const WrappedTarget t{out.data(), out.stride(0), out.stride(1), type == Type::u64 || type == Type::u32};
    return run(progress, [&](const Poll& poll) { return multiply_wrapped(left, right, t, threads, poll); });
  }, nb::arg("left"), nb::arg("right"), nb::arg("out"), nb::arg("threads"), nb::arg("progress").none());

  m.def("has_anchored", [](const std::string& isa) { return find_isa(isa).anchored.multiply != nullptr; },
        nb::arg("isa"));

  m.def("pack_anchored", [](const std::string& isa, bool left, Matrix x, Vector<int32_t> top, Vector<int32_t> lsb,
                            int threads, nb::object progress) {
    const View v = view_of(x);
    require(v.type == Type::f64 || v.type == Type::f32, "anchored sums take float64 and float32");
    require(static_cast<int64_t>(top.shape(0)) == v.vectors && static_cast<int64_t>(lsb.shape(0)) == v.vectors,
            "one exponent for each vector");
    const Isa& kernels = find_isa(isa);
    require(kernels.anchored.multiply != nullptr, "this instruction set has no FMA");
    for (int64_t i = 0; i < v.vectors; ++i)
      require(top(i) == kNoExponent || top(i) - lsb(i) <= kAnchoredSpan, "the entries of a vector span too many bits");
    return run(progress, [&](const Poll& poll) {
      return pack_anchored(kernels, left, v, top.data(), lsb.data(), threads, poll);
    });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("x"), nb::arg("top"), nb::arg("lsb"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("multiply_anchored", [](const AnchoredOperand& left, const AnchoredOperand& right, MutableMatrix out,
                                const std::string& format, int64_t limit, int threads, nb::object progress) {
    const Panels &a = left.panels, &b = right.panels;
    require(a.left && !b.left && a.isa == b.isa && a.depth == b.depth && a.depth > 0, "the operands do not match");
    const Out kind = float_kind(format);
    require(kind == Out::f64 || kind == Out::f32, "anchored sums round to float64 and float32");
    const Target t = make_target(out, kind, a.vectors, b.vectors);
    const AnchoredOutcome o = run(progress, [&](const Poll& poll) {
      return multiply_anchored(left, right, t, limit, threads, poll);
    });
    return nb::make_tuple(o.complete, indices(o.uncertain), o.zeros);
  }, nb::arg("left"), nb::arg("right"), nb::arg("out"), nb::arg("format"), nb::arg("limit"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("exact_product", [](const std::string& isa, Matrix a, Matrix b, MutableMatrix out, int threads,
                            nb::object progress) {
    const View va = view_of(a), vb = view_of(b);
    require(va.type == vb.type && (va.type == Type::f64 || va.type == Type::f32) && va.depth == vb.depth &&
                va.depth > 0, "the operands do not match");
    const Isa& kernels = find_isa(isa);
    require(kernels.anchored.multiply != nullptr, "this instruction set has no FMA");
    const Target t = make_target(out, va.type == Type::f64 ? Out::f64 : Out::f32, va.vectors, vb.vectors);
    return run(progress, [&](const Poll& poll) { return exact_product(kernels, va, vb, t, threads, poll); });
  }, nb::arg("isa"), nb::arg("a"), nb::arg("b"), nb::arg("out"), nb::arg("threads"), nb::arg("progress").none());

  m.def("assess", [](const Operand& left, const Operand& right, Vector<uint64_t> sum_left,
                     Vector<uint64_t> sum_right, double budget,
                     nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> need, int threads,
                     nb::object progress) {
    match(left, right);
    require(static_cast<int64_t>(sum_left.shape(0)) == left.vectors &&
                static_cast<int64_t>(sum_right.shape(0)) == right.vectors &&
                static_cast<int64_t>(need.shape(0)) == left.vectors &&
                static_cast<int64_t>(need.shape(1)) == right.vectors,
            "one sum for each row and column");
    return to_numpy(run(progress, [&](const Poll& poll) {
      return assess(left, right, sum_left.data(), sum_right.data(), budget, need.data(), threads, poll);
    }));
  }, nb::arg("left"), nb::arg("right"), nb::arg("sum_left"), nb::arg("sum_right"), nb::arg("budget"),
     nb::arg("need"), nb::arg("threads"), nb::arg("progress").none());

  m.def("exact_dots", [](Matrix a, Matrix b, nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> at,
                         MutableMatrix out, const std::string& format, std::optional<MutableMatrix> low, int threads,
                         nb::object progress) {
    const View va = view_of(a), vb = view_of(b);
    require(va.type == vb.type && va.depth == vb.depth && at.shape(1) == 2, "the operands do not match");
    const Target t = low ? make_pair_target(out, *low, va.vectors, vb.vectors)
                         : make_target(out, float_kind(format), va.vectors, vb.vectors);
    const auto* index = reinterpret_cast<const Index*>(at.data());
    for (size_t e = 0; e < at.shape(0); ++e)
      require(index[e].i >= 0 && index[e].i < va.vectors && index[e].j >= 0 && index[e].j < vb.vectors,
              "an index lies outside the product");
    run(progress, [&](const Poll& poll) {
      exact_dots(va, vb, index, static_cast<int64_t>(at.shape(0)), t, threads, poll);
      return 0;
    });
  }, nb::arg("a"), nb::arg("b"), nb::arg("at"), nb::arg("out"), nb::arg("format"), nb::arg("low").none(),
     nb::arg("threads"), nb::arg("progress").none());

  m.def("fix_negative_zeros", [](Matrix a, Matrix b, MutableMatrix out, const std::string& format, int threads,
                                 nb::object progress) {
    const View va = view_of(a), vb = view_of(b);
    require(va.type == vb.type && va.depth == vb.depth, "the operands do not match");
    const Target t = make_target(out, float_kind(format), va.vectors, vb.vectors);
    run(progress, [&](const Poll& poll) {
      fix_negative_zeros(va, vb, t, threads, poll);
      return 0;
    });
  }, nb::arg("a"), nb::arg("b"), nb::arg("out"), nb::arg("format"), nb::arg("threads"), nb::arg("progress").none());

  bind_python_ints(m);
}
