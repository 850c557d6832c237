// A few vectors times a large matrix, x W^T + b, in one pass over the matrix: limited by memory bandwidth.
//
// Four rows of the matrix are read in parallel, a vector register at a time. Each output is summed by one thread in a
// fixed order: results do not depend on the number of threads.

#include "rows_of_matrix.h"

namespace {

constexpr Index TOGETHER = 4;  // rows of the matrix that are read in parallel
constexpr Index GRAIN = 64;    // smallest number of groups of rows per thread

struct Job {
  bool bfloat16;
  Index vectors, inner, outer, pitch;  // pitch: stride of the rows of the matrix
  const void *x, *weight, *bias;       // x is contiguous; bias may be null
  void* out;
};

// `ROWS` rows of the matrix times all vectors, two vectors at a time: the rows are in the cache for all but the first
template <Index ROWS, class T>
void put(const Job& job, const Piece<T>* x, Index row) {
  const T *w = static_cast<const T*>(job.weight) + row * job.pitch, *bias = static_cast<const T*>(job.bias);
  T* const out = static_cast<T*>(job.out) + row;
  const Index pieces = parts(job.inner, Piece<T>::SIZE);
  float sums[2 * ROWS];
  for (Index v = 0; v < job.vectors; v += 2) {
    const Index count = min<Index>(2, job.vectors - v);
    products<ROWS>(count, x + v * pieces, w, job.pitch, job.inner, sums);
    for (Index i = 0; i < count; ++i)
      for (Index r = 0; r < ROWS; ++r) {
        const float added = bias ? static_cast<float>(bias[row + r]) : 0.f;
        out[(v + i) * job.outer + r] = static_cast<T>(sums[i * ROWS + r] + added);
      }
  }
}

template <class T>
void multiply(const Job& job) {
  const Index pieces = parts(job.inner, Piece<T>::SIZE);
  Buffer<Piece<T>> x(job.vectors * pieces);
  for (Index v = 0; v < job.vectors; ++v) unpack(static_cast<const T*>(job.x) + v * job.inner, job.inner, x + v * pieces);
  parallel_for(parts(job.outer, TOGETHER), GRAIN, [&](Index begin, Index end) {
    const Index last = min(end * TOGETHER, job.outer);
    Index row = begin * TOGETHER;
    for (; row + TOGETHER <= last; row += TOGETHER) put<TOGETHER, T>(job, x, row);
    for (; row < last; ++row) put<1, T>(job, x, row);
  });
}

}  // namespace

extern "C" const char* ordinate_linear(const Job* job) {
  return guarded([&] { job->bfloat16 ? multiply<c10::BFloat16>(*job) : multiply<float>(*job); });
}
