// Copy of the transpose of a matrix of 32-bit numbers, by blocks that fit into registers.

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "job.h"

namespace {

constexpr Index SIDE = 8;     // rows and columns of a block
constexpr Index GRAIN = 256;  // rows for which a thread is worth its start

struct Job {
  Index rows, columns;
  const float* source;  // (rows, columns)
  float* out;           // (columns, rows)
};

// rows x columns numbers at the edge
void copy_edge(const Job& job, Index row, Index column, Index rows, Index columns) {
  for (Index c = column; c < column + columns; ++c)
    for (Index r = row; r < row + rows; ++r) job.out[c * job.rows + r] = job.source[r * job.columns + c];
}

#ifdef __AVX2__
// pairs of rows, then pairs of pairs, then halves
void copy_block(const Job& job, Index row, Index column) {
  const float* from = job.source + row * job.columns + column;
  float* to = job.out + column * job.rows + row;
  __m256 a[SIDE], b[SIDE];
  for (int r = 0; r < SIDE; ++r) a[r] = _mm256_loadu_ps(from + r * job.columns);
  for (int r = 0; r < SIDE; r += 2) {
    b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
    b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
  }
  for (int r = 0; r < SIDE; r += 4)
    for (int half = 0; half < 2; ++half) {
      a[r + 2 * half] = _mm256_shuffle_ps(b[r + half], b[r + half + 2], 0x44);
      a[r + 2 * half + 1] = _mm256_shuffle_ps(b[r + half], b[r + half + 2], 0xee);
    }
  for (int c = 0; c < SIDE / 2; ++c) {
    _mm256_storeu_ps(to + c * job.rows, _mm256_permute2f128_ps(a[c], a[c + 4], 0x20));
    _mm256_storeu_ps(to + (c + 4) * job.rows, _mm256_permute2f128_ps(a[c], a[c + 4], 0x31));
  }
}
#else
void copy_block(const Job& job, Index row, Index column) { copy_edge(job, row, column, SIDE, SIDE); }
#endif

// a strip of SIDE columns at a time, so that its rows of the result stay in the cache
void copy_rows(const Job& job, Index begin, Index end) {
  for (Index column = 0; column < job.columns; column += SIDE) {
    const Index columns = min(SIDE, job.columns - column);
    for (Index row = begin; row < end; row += SIDE) {
      const Index rows = min(SIDE, end - row);
      if (rows == SIDE && columns == SIDE) copy_block(job, row, column);
      else copy_edge(job, row, column, rows, columns);
    }
  }
}

}  // namespace

extern "C" const char* ordinate_transpose(const Job* job) {
  return guarded([&] {
    parallel_for(parts(job->rows, SIDE), GRAIN / SIDE, [&](Index begin, Index end) {
      copy_rows(*job, begin * SIDE, min(end * SIDE, job->rows));
    });
  });
}
