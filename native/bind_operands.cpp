// Python bindings of the surveys and of packing.
#include "bindings.hpp"

namespace gemmulate {

void bind_operands(nanobind::module_& m) {
  // Bytes for a result, from the pool of buffers in large pages (AlignedBytes).
  m.def("empty", [](size_t bytes) {
    auto* owner = new AlignedBytes(bytes);
    const nb::capsule capsule(owner, [](void* p) noexcept { delete static_cast<AlignedBytes*>(p); });
    return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(owner->get(), {bytes}, capsule);
  }, nb::arg("bytes"));

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

  m.def("integer_range", [](const std::string& isa, Matrix x, int threads, nb::object progress) {
    const View v = view_of(x);
    const Range r = run(progress, [&](const Poll& poll) { return range_integers(find_isa(isa), v, threads, poll); });
    return nb::make_tuple(r.any ? r.min : 0, r.max);
  }, nb::arg("isa"), nb::arg("x"), nb::arg("threads"), nb::arg("progress").none());

  m.def("centre_integers", [](const std::string& isa, Matrix x, uint64_t modulus, MutableMatrix out, int threads, nb::object progress) {
    const View v = view_of(x);
    require(v.type != Type::f64 && v.type != Type::f32 && modulus >= 2 && modulus <= uint64_t{1} << 63, "integers, and a modulus in [2, 2^63]");
    const View t = view_of(out);
    require(t.vectors == v.vectors && t.depth == v.depth && t.stride_v == v.depth && (t.stride_k == 1 || v.depth <= 1),
            "the output is contiguous and of the operand's shape");
    const int bits = t.type == Type::i8 ? 8 : t.type == Type::i16 ? 16 : t.type == Type::i32 ? 32 : 64;
    require(t.type == Type::i64 || (bits < 64 && modulus >> bits == 0), "the output holds p / 2");
    run(progress, [&](const Poll& poll) {
      centre_integers(find_isa(isa), v, modulus, out.data(), t.type, threads, poll);
      return 0;
    });
  }, nb::arg("isa"), nb::arg("x"), nb::arg("modulus"), nb::arg("out"), nb::arg("threads"), nb::arg("progress").none());

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

  m.def("pack_integers", [](const std::string& isa, bool left, Matrix x, const Moduli& moduli, uint64_t modulus,
                            int threads, nb::object progress) {
    const View v = view_of(x);
    require(modulus == 0 || (modulus >= 2 && modulus <= uint64_t{1} << 63), "the modulus lies in [2, 2^63]");
    return run(progress, [&](const Poll& poll) {
      return pack_integers(find_isa(isa), left, v, moduli.table, modulus, threads, poll);
    });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("x"), nb::arg("moduli"), nb::arg("modulus"), nb::arg("threads"),
     nb::arg("progress").none());

  m.def("pack_digits", [](const std::string& isa, bool left, Matrix x, uint64_t modulus, int bits, int digits,
                          int threads, nb::object progress) {
    const View v = view_of(x);
    const DigitSystem system = make_digits(modulus, bits, digits);
    return run(progress, [&](const Poll& poll) {
      return pack_digits(find_isa(isa), left, v, system, threads, poll);
    });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("x"), nb::arg("modulus"), nb::arg("bits"), nb::arg("digits"),
     nb::arg("threads"), nb::arg("progress").none());

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

  m.def("pack_wrapped", [](const std::string& isa, bool left, Matrix x, int item, int threads, nb::object progress) {
    const View v = view_of(x);
    require(v.type != Type::f64 && v.type != Type::f32 && (item == 4 || item == 8), "integers, modulo 2^32 or 2^64");
    return run(progress, [&](const Poll& poll) { return pack_wrapped(find_isa(isa), left, v, item, threads, poll); });
  }, nb::arg("isa"), nb::arg("left"), nb::arg("x"), nb::arg("item"), nb::arg("threads"), nb::arg("progress").none());

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
}

}  // namespace gemmulate
