// A few vectors times the rows of a matrix, and weighted sums of its rows, in float32 or bfloat16; computed in float32.

#pragma once

#include "vector.h"

namespace {

using Bits = uint32_t __attribute__((vector_size(REGISTER)));

constexpr Index LINE = 64;  // of the cache [bytes]
constexpr Index AHEAD = 4;  // rows that are prefetched

// one line of the cache: float32 numbers, or twice as many bfloat16 ones, of which those of each register are unpacked to
// those at even and those at odd positions
template <class T>
struct Piece {
  static constexpr Index EACH = sizeof(float) / sizeof(T);  // parts that a register unpacks to
  static constexpr Index SIZE = LINE / sizeof(T), PARTS = LINE / REGISTER * EACH;
  Vector parts[PARTS];

  explicit Piece(const T* from) {
#pragma GCC unroll 4
    for (Index i = 0; i < LINE / REGISTER; ++i) {
      Bits bits;
      std::memcpy(&bits, from + i * LANES * EACH, REGISTER);
      if constexpr (EACH == 1) {
        parts[i] = reinterpret_cast<Vector>(bits);
      } else {
        parts[2 * i] = reinterpret_cast<Vector>(bits << 16);
        parts[2 * i + 1] = reinterpret_cast<Vector>(bits & 0xffff0000u);
      }
    }
  }

  // add the products with the numbers of another piece to `sum`
  void multiply(const Piece& other, Vector& sum) const {
#pragma GCC unroll 8
    for (Index i = 0; i < PARTS; ++i) sum += parts[i] * other.parts[i];
  }

  // where the number at this position of a row is among the unpacked ones
  static Index unpacked(Index position) {
    const Index inside = position % (LANES * EACH);
    return position - inside + inside % EACH * LANES + inside / EACH;
  }
};

// the last numbers of a row, zero-padded, without reading beyond its end
template <class T>
Piece<T> rest(const T* from, Index count) {
  T held[Piece<T>::SIZE] = {};
  std::copy_n(from, count, held);
  return Piece<T>(held);
}

template <class T>
void unpack(const T* from, Index count, Piece<T>* to) {
  constexpr Index SIZE = Piece<T>::SIZE;
  for (Index p = 0; p < parts(count, SIZE); ++p) to[p] = rest(from + p * SIZE, min(SIZE, count - p * SIZE));
}

// to[v * ROWS + r] = x_v . w_r
template <Index VECTORS, Index ROWS, class T>
inline void products(const Piece<T>* x, const T* w, Index pitch, Index inner, float* to) {
  constexpr Index SIZE = Piece<T>::SIZE;
  const Index whole = inner / SIZE, pieces = parts(inner, SIZE);
  Vector sums[VECTORS][ROWS] = {};
  const auto add = [&](Index p, Index r, const Piece<T>& read) {
#pragma GCC unroll 2
    for (Index v = 0; v < VECTORS; ++v) x[v * pieces + p].multiply(read, sums[v][r]);
  };
  for (Index p = 0; p < whole; ++p)
#pragma GCC unroll 4
    for (Index r = 0; r < ROWS; ++r) {
      // hardware prefetchers need long streams, and a row is short
      __builtin_prefetch(w + (r + AHEAD) * pitch + p * SIZE);
      add(p, r, Piece<T>(w + r * pitch + p * SIZE));
    }
  if (whole < pieces)
#pragma GCC unroll 4
    for (Index r = 0; r < ROWS; ++r) add(whole, r, rest(w + r * pitch + whole * SIZE, inner - whole * SIZE));
#pragma GCC unroll 2
  for (Index v = 0; v < VECTORS; ++v)
#pragma GCC unroll 4
    for (Index r = 0; r < ROWS; ++r) to[v * ROWS + r] = total(sums[v][r]);
}

// the same for one or two vectors. Not by a pointer to one of both functions: GCC 12 tuned for processors of Intel then
// always calls the one for two, which reads beyond a single vector
template <Index ROWS, class T>
inline void products(Index vectors, const Piece<T>* x, const T* w, Index pitch, Index inner, float* to) {
  if (vectors == 1)
    products<1, ROWS>(x, w, pitch, inner, to);
  else
    products<2, ROWS>(x, w, pitch, inner, to);
}

// sums += weights . rows, for PIECES pieces of each row, or for its last numbers, `left` of them; sums are unpacked
template <Index PIECES, class T>
inline void add_rows(const float* weights, const T* rows, Index pitch, Index count, float* sums, Index left = 0) {
  constexpr Index PARTS = Piece<T>::PARTS;
  Vector held[PIECES * PARTS] = {};
  for (Index j = 0; j < count; ++j) {
    const T* const row = rows + j * pitch;
    for (Index p = 0; p < PIECES; ++p) {
      __builtin_prefetch(row + 2 * AHEAD * pitch + p * Piece<T>::SIZE);
      const Piece<T> read = left ? rest(row, left) : Piece<T>(row + p * Piece<T>::SIZE);
      for (Index part = 0; part < PARTS; ++part) held[p * PARTS + part] += weights[j] * read.parts[part];
    }
  }
  Vector before[PIECES * PARTS];
  std::memcpy(before, sums, sizeof held);
  for (Index i = 0; i < PIECES * PARTS; ++i) held[i] += before[i];
  std::memcpy(sums, held, sizeof held);
}

}  // namespace
