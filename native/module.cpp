// The extension module: its types, and what asks nothing of matrices.
#include "bindings.hpp"

using namespace gemmulate;

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
      [](Moduli* self, Vector<int32_t> moduli, Table<int32_t> coef, bool halved) {
        require(coef.shape(0) == moduli.shape(0) && coef.shape(1) >= 1, "coef has one row for each modulus");
        ModuliTable t;
        t.moduli = static_cast<int>(moduli.shape(0));
        t.halved = halved;
        t.words = static_cast<int>(coef.shape(1));
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

  bind_operands(m);
  bind_products(m);
  bind_python_ints(m);
}
