// Shared by the forward and backward pass of attention: the job, and packing of tensors for products.

#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "job.h"
#include "matrix_product.h"
#include "transpose.h"

namespace {

using at::native::cpublas::brgemm;

constexpr Index ROWS = 128;     // rows of a tile: queries in the forward pass, keys in the backward pass
constexpr Index COLUMNS = 512;  // columns of a tile: keys in the forward pass, queries in the backward pass
constexpr Index PANEL = 64;     // columns of one product; the last may have fewer
constexpr Index TERMS = 64;     // terms of a partial sum in float32 products
constexpr Index STEP = 32;      // rows of a product are a multiple of it: each number of rows has machine code of its own
constexpr Index LANES = 16;     // columns of a row begin and end at a multiple of it: whole vectors

template <class T>
constexpr bool PAIRED = sizeof(T) == 2;
template <class T, class P>
constexpr bool CONVERTED = !std::is_same_v<T, P>;

Index padded(Index count) { return parts(count, PANEL) * PANEL; }
// columns of a tile that are computed
Index whole(Index count) { return parts(count, LANES) * LANES; }

struct Job {
  bool back, bfloat16, wide;  // wide: operands of products are float, also of bfloat16 tensors
  Index batch, heads, key_heads, queries, keys, width, depth;  // depth: channels of a value
  double scale, cap;   // cap: soft cap of the scores, 0 for none
  const float* sinks;  // (heads), or null
  const float* table;  // bias by offset, (heads, queries + keys - 1); reversed in the backward pass
  View bias;           // bias of each pair, float32: (batch, heads, queries, keys); without data for none
  const Index *first, *last;  // (batch, heads, blocks): the keys of each block of ROWS queries
  const Index *q_document, *k_document;  // (batch, tokens), or null
  View q, k, v, out;
  // (batch, heads, queries): a weight is exp(score - top) * share; 0 and 0 for a fully masked query
  float *top, *share;
  int8_t* lost;  // (batch, heads, queries, depth): rounding error of a bfloat16 output, see `lose`; or null
  float* weights;  // (batch, heads, queries, keys), initialised to 0, of at most COLUMNS keys; or null
  View gradient, dq, dk, dv;
  float* dtable;  // (batch, heads, queries + keys - 1), reversed, initialised to 0; or null
  View dbias;  // of each pair, initialised to 0, without a soft cap; without data for none
  const float* dweights;  // gradient of the weights, or null
  float* dsinks;  // (batch, heads), or null

  int8_t* rest(Index b, Index h, Index i) const {
    return lost ? lost + ((b * heads + h) * queries + i) * depth : nullptr;
  }
  Index blocks() const { return parts(queries, ROWS); }
  Index pitch() const { return queries + keys - 1; }

  // the greatest distance at which a query of this head sees a key: index of the key minus that of the query
  Index reach(Index h) const {
    const float* end = table + h * pitch();
    Index x = back ? 0 : pitch() - 1;
    while (x >= 0 && x < pitch() && end[x] == NEVER) x += back ? 1 : -1;
    return (back ? pitch() - 1 - x : x) - (queries - 1);
  }
};

// x, rounded down to a multiple of `size`, within 0 and `most`
Index floored(Index x, Index size, Index most) { return std::clamp<Index>(x, 0, most) / size * size; }
// x, rounded up likewise
Index raised(Index x, Index size, Index most) { return min(parts(std::clamp<Index>(x, 0, most), size) * size, most); }

// Add a product to `sums`, in partial sums of few terms: long float32 sums lose digits. 16-bit operands have so few
// digits that long sums are accurate enough. `rows` gives the first row that some terms, from one on to an end, add to,
// and the end of such rows: in the others they are 0.
template <class T, class Rows>
void add_product(const Rows& rows, Index columns, Index inner, Index right_pitch, const T* left, const T* right,
                 float* sums) {
  const Index terms = PAIRED<T> ? COLUMNS : TERMS;
  for (Index k = 0; k < inner; k += terms) {
    const auto [begin, end] = rows(k, min(k + terms, inner));
    if (begin < end)
      brgemm(end - begin, columns, min(terms, inner - k), COLUMNS, right_pitch, columns, true,
             left + begin * COLUMNS + k, right + k * right_pitch, sums + begin * columns, PAIRED<T>);
  }
}

// Soft cap, cap tanh(x / cap). Near 0 by its Taylor series, since 1 - e^-2x would cancel.
inline float bend(float x, float cap) {
  const float y = x / cap, square = y * y, less = exponential(y < 0.f ? 2.f * y : -2.f * y);
  const float far = (1.f - less) / (1.f + less);
  const float near = 1.f + square * (-1.f / 3 + square * (2.f / 15 + square * (-17.f / 315 + square * 62.f / 2835)));
  return cap * (square < 0.0625f ? y * near : y < 0.f ? -far : far);
}

// Eight bits of the rounding error of a bfloat16, and the number restored from both. Bit patterns of floats of one sign
// are ordered like the floats, so the error is a difference of integers.
inline int8_t lose(float exact, c10::BFloat16 rounded) {
  const auto rest = static_cast<int32_t>(c10::bit_cast<uint32_t>(exact) - (static_cast<uint32_t>(rounded.x) << 16));
  return static_cast<int8_t>(min((rest + 128) >> 8, 127));
}
inline float restore(c10::BFloat16 rounded, int8_t lost) {
  return c10::bit_cast<float>((static_cast<uint32_t>(rounded.x) << 16) + static_cast<uint32_t>(lost * 256));
}

template <class T>
void narrow(const float* __restrict from, T* __restrict to, Index count, float scale = 1.f) {
#pragma omp simd
  for (Index c = 0; c < count; ++c) narrow(from[c] * scale, to[c]);
}

// Pack PANEL rows as the columns of a right operand; missing rows become 0.
template <class T, class P>
void pack_columns(const T* from, Index pitch, Index count, Index width, P* to) {
  if (count < PANEL) std::memset(static_cast<void*>(to), 0, PANEL * width * sizeof(P));
  if constexpr (CONVERTED<T, P>) {
    for (Index j = 0; j < min(count, PANEL); ++j)
      for (Index c = 0; c < width; ++c) to[c * PANEL + j] = from[j * pitch + c];
  } else {
    constexpr Index EACH = sizeof(float) / sizeof(T);  // of a unit: one float32, or a pair of 16-bit numbers (VNNI layout)
    const auto* rows = reinterpret_cast<const float*>(from);
    auto* const units = reinterpret_cast<float*>(to);
    if (pitch % EACH == 0) return transpose({rows, pitch / EACH}, count, width / EACH, {units, PANEL});
    for (Index j = 0; j < min(count, PANEL); ++j)
      for (Index c = 0; c < width / EACH; ++c) std::memcpy(units + c * PANEL + j, from + j * pitch + c * EACH, sizeof(float));
  }
}

// Rows as the left operand of a product, and the distance between them: in place, or converted in `room`.
template <class T, class P>
std::pair<const P*, Index> left_rows(const View& view, Index b, Index h, Index n, Index count, Index width, P* room) {
  if constexpr (CONVERTED<T, P>) {
    for (Index r = 0; r < count; ++r) {
      const T* __restrict from = view.row<T>(b, h, n + r);
#pragma omp simd
      for (Index c = 0; c < width; ++c) room[r * width + c] = from[c];
    }
    return {room, width};
  } else {
    return {view.row<T>(b, h, n), view.token};
  }
}

// Pack rows as the rows of a right operand, up to `total`; missing rows become 0. Of 16-bit types, two rows are
// interleaved.
template <class T, class P>
void pack_rows(const T* from, Index pitch, Index count, Index total, Index width, P* to) {
  const Index even = count / 2 * 2;
  if (count < total) std::memset(static_cast<void*>(to + even * width), 0, (total - even) * width * sizeof(P));
  if constexpr (CONVERTED<T, P>) {
    for (Index r = 0; r < count; ++r) {
      const T* __restrict row = from + r * pitch;
#pragma omp simd
      for (Index c = 0; c < width; ++c) to[r * width + c] = row[c];
    }
  } else if constexpr (!PAIRED<P>) {
    for (Index r = 0; r < count; ++r) std::memcpy(to + r * width, from + r * pitch, width * sizeof(T));
  } else {
    const auto* bits = reinterpret_cast<const uint16_t*>(from);
    auto* __restrict unit = reinterpret_cast<uint32_t*>(to);
    for (Index r = 0; r < count; r += 2) {
      const uint16_t *one = bits + r * pitch, *two = r + 1 < count ? one + pitch : nullptr;
#pragma omp simd
      for (Index c = 0; c < width; ++c) unit[r / 2 * width + c] = two ? one[c] | static_cast<uint32_t>(two[c]) << 16 : one[c];
    }
  }
}

// Bias of a row of a tile: that by offset, in `room` with that of each pair and with -inf at other documents.
inline const float* row_bias(const float* table, const float* pairs, const Index* documents, Index own, Index count,
                             float* room) {
  const float* bias = pairs ? room : table;
#pragma omp simd
  for (Index c = 0; c < (pairs ? count : 0); ++c) room[c] = table[c] + pairs[c];
  if (!documents) return bias;
#pragma omp simd
  for (Index c = 0; c < count; ++c) room[c] = documents[c] == own ? bias[c] : NEVER;
  return room;
}

// Whether two ranges of document ids overlap: a tile without common documents can be skipped.
bool meet(const Index* one, Index count, const Index* two, Index other) {
  if (!one) return true;
  const auto [low, high] = std::minmax_element(one, one + count);
  const auto [least, most] = std::minmax_element(two, two + other);
  return *low <= *most && *least <= *high;
}

const Index* documents(const Index* all, Index b, Index tokens, Index from) {
  return all ? all + b * tokens + from : nullptr;
}

}  // namespace
