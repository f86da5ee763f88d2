// From an element type known at run time to a template: body is called with a value of that type.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "narrow.hpp"
#include "operand.hpp"
#include "product.hpp"

namespace gemmulate {

template <class Body>
void dispatch_float(Type type, const Body& body) {
  switch (type) {
    case Type::f64: return body(double{});
    case Type::f32: return body(float{});
    default: throw std::invalid_argument("expected a float64 or float32 matrix");
  }
}

// The element type of a float result.
template <class Body>
void dispatch_result(Out kind, const Body& body) {
  switch (kind) {
    case Out::f64: return body(double{});
    case Out::f32: return body(float{});
    case Out::f16: return body(Float16{});
    case Out::bf16: return body(Bfloat16{});
    default: throw std::invalid_argument("expected a float result");
  }
}

template <class Body>
void dispatch_integer(Type type, const Body& body) {
  switch (type) {
    case Type::i8: return body(int8_t{});
    case Type::i16: return body(int16_t{});
    case Type::i32: return body(int32_t{});
    case Type::i64: return body(int64_t{});
    case Type::u8: return body(uint8_t{});
    case Type::u16: return body(uint16_t{});
    case Type::u32: return body(uint32_t{});
    case Type::u64: return body(uint64_t{});
    default: throw std::invalid_argument("expected an integer matrix");
  }
}

}  // namespace gemmulate
