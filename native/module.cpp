// Python bindings of the native core.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_native, m) { m.attr("__doc__") = "gemmulate's native core"; }
