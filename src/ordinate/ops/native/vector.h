// Vectors of float32 as wide as a register of the processor, and their sum.

#pragma once

#include <cstring>

#include "job.h"

namespace {

// of a vector register: compilers keep longer vectors in memory [bytes]
#if defined(__AVX512F__)
constexpr Index REGISTER = 64;
#elif defined(__AVX__)
constexpr Index REGISTER = 32;
#else
constexpr Index REGISTER = 16;
#endif
constexpr Index LANES = REGISTER / sizeof(float);
using Vector = float __attribute__((vector_size(REGISTER)));

// horizontal sum by halving: a fixed order, independent of the compiler
inline float total(const Vector& x) {
#ifdef __AVX512F__
  return _mm512_reduce_add_ps(reinterpret_cast<__m512>(x));
#else
  using Quad = float __attribute__((vector_size(16)));
  Quad quads[LANES / 4];
  std::memcpy(quads, &x, REGISTER);
  for (Index half = LANES / 8; half; half /= 2)
    for (Index i = 0; i < half; ++i) quads[i] += quads[i + half];
  return (quads[0][0] + quads[0][2]) + (quads[0][1] + quads[0][3]);
#endif
}

}  // namespace
