// Python bindings of the products of packed operands, and of single elements.
#include "bindings.hpp"

namespace gemmulate {

void bind_products(nanobind::module_& m) {
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

  m.def("multiply_digits", [](const Operand& left, const Operand& right, uint64_t modulus, int bits, int digits,
                              MutableMatrix out, int threads, nb::object progress) {
    match(left, right);
    const DigitSystem system = make_digits(modulus, bits, digits);
    require(left.planes == system.planes() && left.moduli.empty() && left.sums.empty() && right.sums.empty(),
            "the operands were not packed as these digits");
    Target t = make_target(out, Out::mod, left.vectors, right.vectors);
    t.modulus = modulus;
    run(progress, [&](const Poll& poll) {
      multiply_digits(left, right, system, t, threads, poll);
      return 0;
    });
  }, nb::arg("left"), nb::arg("right"), nb::arg("modulus"), nb::arg("bits"), nb::arg("digits"), nb::arg("out"),
     nb::arg("threads"), nb::arg("progress").none());

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
    return run(progress, [&](const Poll& poll) {
      return small_float_product(kernels, va, vb, t, poll) || exact_product(kernels, va, vb, t, threads, poll);
    });
  }, nb::arg("isa"), nb::arg("a"), nb::arg("b"), nb::arg("out"), nb::arg("threads"), nb::arg("progress").none());

  m.def("exact_integer_product", [](const std::string& isa, Matrix a, Matrix b, MutableMatrix out, uint64_t modulus,
                                    bool wrap) {
    const View va = view_of(a), vb = view_of(b), vo = view_of(out);
    const auto integral = [](Type t) { return t != Type::f64 && t != Type::f32; };
    require(integral(va.type) && integral(vb.type) && integral(vo.type) && va.depth == vb.depth && va.depth > 0,
            "the operands do not match");
    require(vo.vectors == va.vectors && vo.depth == vb.vectors, "the output has another shape than the product");
    require(wrap ? modulus == 0 : vo.type == Type::i64 || (vo.type == Type::u64 && modulus == 0),
            "the output is int64, or uint64 without a modulus");
    require(modulus == 0 || (modulus >= 2 && modulus <= uint64_t{1} << 63), "the modulus lies in [2, 2^63]");
    const IntegerTarget t{vo.type, out.data(), vo.stride_v, vo.stride_k};
    const nb::gil_scoped_release release;
    return small_integer_product(find_isa(isa), va, vb, t, modulus, wrap);
  }, nb::arg("isa"), nb::arg("a"), nb::arg("b"), nb::arg("out"), nb::arg("modulus"), nb::arg("wrap"));

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
}

}  // namespace gemmulate
