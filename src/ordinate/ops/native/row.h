// A few columns of one row of a matrix, in vector registers.

#pragma once

#include "vector.h"

namespace {

// P vectors of columns of one row; missing columns at the end are 0
template <int P>
struct Row {
  Vector of[P];

  static Row zero() { return read(nullptr, 0); }
  static Row read(const float* from, Index count) {
    Row row;
    if (count == P * LANES) return std::memcpy(&row, from, sizeof(Row)), row;
    for (Vector& part : row.of) part = Vector{};
    if (count > 0) std::memcpy(&row, from, count * sizeof(float));
    return row;
  }
  void write(float* to, Index count) const { std::memcpy(to, this, count * sizeof(float)); }
  void add(float scale, const Row& x) {
    for (int p = 0; p < P; ++p) of[p] += scale * x.of[p];
  }
  void scale(float by) {
    for (int p = 0; p < P; ++p) of[p] *= by;
  }
};

template <int P>
float dot(const Row<P>& x, const Row<P>& y) {
  Vector sum = x.of[0] * y.of[0];
  for (int p = 1; p < P; ++p) sum += x.of[p] * y.of[p];
  return total(sum);
}

}  // namespace
