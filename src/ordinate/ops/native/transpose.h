// Transposed copy of a matrix of 32-bit numbers, by blocks that fit into registers.

#pragma once

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "job.h"

namespace {

constexpr Index SIDE = 8;  // rows and columns of a block

// a matrix of which some rows and columns are read, or written
template <class T>
struct Part {
  T* data;
  Index pitch;  // distance between rows [numbers]
};

inline void transpose_edge(Part<const float> from, Index rows, Index columns, Part<float> to) {
  for (Index c = 0; c < columns; ++c)
    for (Index r = 0; r < rows; ++r) to.data[c * to.pitch + r] = from.data[r * from.pitch + c];
}

#ifdef __AVX2__
// pairs of rows, then pairs of pairs, then halves
inline void transpose_block(Part<const float> from, Part<float> to) {
  __m256 a[SIDE], b[SIDE];
  for (int r = 0; r < SIDE; ++r) a[r] = _mm256_loadu_ps(from.data + r * from.pitch);
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
    _mm256_storeu_ps(to.data + c * to.pitch, _mm256_permute2f128_ps(a[c], a[c + 4], 0x20));
    _mm256_storeu_ps(to.data + (c + 4) * to.pitch, _mm256_permute2f128_ps(a[c], a[c + 4], 0x31));
  }
}
#else
inline void transpose_block(Part<const float> from, Part<float> to) { transpose_edge(from, SIDE, SIDE, to); }
#endif

// a strip of SIDE columns at a time, so that its rows of the result stay in the cache
inline void transpose(Part<const float> from, Index rows, Index columns, Part<float> to) {
  for (Index column = 0; column < columns; column += SIDE) {
    const Index across = min(SIDE, columns - column);
    for (Index row = 0; row < rows; row += SIDE) {
      const Index down = min(SIDE, rows - row);
      const Part<const float> own{from.data + row * from.pitch + column, from.pitch};
      const Part<float> made{to.data + column * to.pitch + row, to.pitch};
      if (down == SIDE && across == SIDE) transpose_block(own, made);
      else transpose_edge(own, down, across, made);
    }
  }
}

}  // namespace
