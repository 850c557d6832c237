// A few vectors times a large matrix, x W^T + b, in one pass over the matrix: limited by memory bandwidth.
//
// Four rows of the matrix are read in parallel, 64 bytes at a time. Each output is summed by one thread in a fixed
// order: results do not depend on the number of threads.

#include <cstring>

#include "job.h"

namespace {

using Floats = float __attribute__((vector_size(64)));
using Bits = uint32_t __attribute__((vector_size(64)));

constexpr Index TOGETHER = 4;  // rows of the matrix that are read in parallel
constexpr Index AHEAD = 4;     // rows that are prefetched
constexpr Index GRAIN = 64;    // smallest number of groups of rows per thread
constexpr Index LANES = 16;

struct Job {
  bool bfloat16;
  Index vectors, inner, outer, pitch;  // pitch: stride of the rows of the matrix
  const void *x, *weight, *bias;       // x is contiguous; bias may be null
  void* out;
};

// 64 bytes: 16 float32 numbers, or 32 bfloat16 ones, unpacked to 16 at even and 16 at odd positions
template <class T>
struct Piece {
  static constexpr Index SIZE = 64 / sizeof(T), PARTS = SIZE / LANES;
  Floats parts[PARTS];

  explicit Piece(const T* from) {
    Bits bits;
    std::memcpy(&bits, from, 64);
    if constexpr (PARTS == 1) {
      parts[0] = reinterpret_cast<Floats>(bits);
    } else {
      parts[0] = reinterpret_cast<Floats>(bits << 16);
      parts[1] = reinterpret_cast<Floats>(bits & 0xffff0000u);
    }
  }
};

// the last numbers of a row, zero-padded, without reading beyond its end
template <class T>
Piece<T> rest(const T* from, Index count) {
  T held[Piece<T>::SIZE] = {};
  std::copy_n(from, count, held);
  return Piece<T>(held);
}

template <Index VECTORS, Index ROWS, class T>
inline void products(const Piece<T>* x, const T* w, Index pitch, Index inner, float* to) {
  constexpr Index SIZE = Piece<T>::SIZE;
  const Index whole = inner / SIZE, pieces = parts(inner, SIZE);
  Floats sums[VECTORS][ROWS] = {};
  const auto add = [&](Index p, Index r, const Piece<T>& read) {
    for (Index v = 0; v < VECTORS; ++v)
      for (Index part = 0; part < Piece<T>::PARTS; ++part) sums[v][r] += x[v * pieces + p].parts[part] * read.parts[part];
  };
  for (Index p = 0; p < whole; ++p)
    for (Index r = 0; r < ROWS; ++r) {
      // hardware prefetchers need long streams, and a row is short
      __builtin_prefetch(w + (r + AHEAD) * pitch + p * SIZE);
      add(p, r, Piece<T>(w + r * pitch + p * SIZE));
    }
  if (whole < pieces)
    for (Index r = 0; r < ROWS; ++r) add(whole, r, rest(w + r * pitch + whole * SIZE, inner - whole * SIZE));
  for (Index v = 0; v < VECTORS; ++v)
    for (Index r = 0; r < ROWS; ++r) {
      Floats& sum = sums[v][r];
      for (Index half = LANES / 2; half; half /= 2)
        for (Index lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
      to[v * ROWS + r] = sum[0];
    }
}

// `ROWS` rows of the matrix times all vectors, two vectors at a time: the rows are in the cache for all but the first
template <Index ROWS, class T>
void put(const Job& job, const Piece<T>* x, Index row) {
  const T *w = static_cast<const T*>(job.weight) + row * job.pitch, *bias = static_cast<const T*>(job.bias);
  T* const out = static_cast<T*>(job.out) + row;
  const Index pieces = parts(job.inner, Piece<T>::SIZE);
  float sums[2 * ROWS];
  for (Index v = 0; v < job.vectors; v += 2) {
    const Index count = min<Index>(2, job.vectors - v);
    auto* const work = count == 1 ? products<1, ROWS, T> : products<2, ROWS, T>;
    work(x + v * pieces, w, job.pitch, job.inner, sums);
    for (Index i = 0; i < count; ++i)
      for (Index r = 0; r < ROWS; ++r) {
        const float added = bias ? static_cast<float>(bias[row + r]) : 0.f;
        out[(v + i) * job.outer + r] = static_cast<T>(sums[i * ROWS + r] + added);
      }
  }
}

template <class T>
void multiply(const Job& job) {
  constexpr Index SIZE = Piece<T>::SIZE;
  const Index pieces = parts(job.inner, SIZE);
  Buffer<Piece<T>> x(job.vectors * pieces);
  for (Index v = 0; v < job.vectors; ++v)
    for (Index p = 0; p < pieces; ++p) {
      const T* const from = static_cast<const T*>(job.x) + v * job.inner + p * SIZE;
      x[v * pieces + p] = rest(from, min(SIZE, job.inner - p * SIZE));
    }
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
