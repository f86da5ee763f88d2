// Python ints to machine words and back, for lists of them.
#pragma once

#include <nanobind/nanobind.h>

namespace gemmulate {

void bind_python_ints(nanobind::module_& m);

}  // namespace gemmulate
