// Row-major float32 matrices and their products.

#pragma once

#include "job.h"
#include "matrix_product.h"

namespace {

constexpr Index LANES = 16;

struct Matrix {
  float* data;
  Index rows, columns;
  float* row(Index i) const { return data + i * columns; }
  void scale_rows(const float* by) const {
    for (Index i = 0; i < rows; ++i)
      if (by[i] != 1.f) scale(row(i), by[i], columns);
  }
  void scale_columns(const float* by) const {
    for (Index i = 0; i < rows; ++i)
#pragma omp simd
      for (Index j = 0; j < columns; ++j) row(i)[j] *= by[j];
  }
  void scale(float by) const {
    if (by != 1.f) scale(data, by, rows * columns);
  }
  static void scale(float* x, float by, Index count) {
#pragma omp simd
    for (Index c = 0; c < count; ++c) x[c] *= by;
  }
};

// to = a b, or to += a b
void multiply(const Matrix& a, const Matrix& b, const Matrix& to, bool add = false) {
  at::native::cpublas::brgemm(a.rows, b.columns, a.columns, a.columns, b.columns, to.columns, add, a.data, b.data,
                              to.data, false);
}

void transpose(const Matrix& from, const Matrix& to) {
  for (Index i = 0; i < to.rows; ++i)
    for (Index j = 0; j < to.columns; ++j) to.row(i)[j] = from.row(j)[i];
}

// arena: several matrices in one allocation, each aligned to whole vectors
class Room {
  Buffer<float> data;
  Index used = 0;

 public:
  explicit Room(Index count) : data(count) {}
  Matrix take(Index rows, Index columns) {
    const Matrix matrix{data + used, rows, columns};
    used += parts(rows * columns, LANES) * LANES;
    return matrix;
  }
};

}  // namespace
