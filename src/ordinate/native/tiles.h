// What both ways through attention share: the job, how its tensors are laid out for products, exponentials.

#pragma once

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <c10/util/BFloat16.h>
#include <c10/util/bit_cast.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace {

using at::native::cpublas::brgemm;
using std::min;
using Index = int64_t;

constexpr Index ROWS = 128;     // of a tile: queries on the way forward, keys on the way back
constexpr Index COLUMNS = 512;  // of a tile: keys on the way forward, queries on the way back
constexpr Index PANEL = 64;     // columns of one product
constexpr float NEVER = -std::numeric_limits<float>::infinity();

template <class T>
constexpr bool PAIRED = sizeof(T) == 2;

Index parts(Index whole, Index size) { return (whole + size - 1) / size; }
Index padded(Index count) { return parts(count, PANEL) * PANEL; }

struct View {
  void* data;
  Index batch, head, token;  // strides; channels lie side by side

  template <class T>
  T* row(Index b, Index h, Index n = 0) const {
    return static_cast<T*>(data) + b * batch + h * head + n * token;
  }
};

struct Job {
  Index batch, heads, key_heads, queries, keys, width, depth;  // depth: channels of a value
  double scale;
  const float* table;  // (heads, queries + keys - 1); on the way back in reverse
  const Index *first, *last;  // (batch, heads, blocks) and (blocks): the keys of each block of ROWS queries
  const Index *q_document, *k_document;  // (batch, tokens), or null
  View q, k, v, out;
  // (batch, heads, queries): a weight is exp(score - top) * share; 0 and 0 for a query that sees nothing
  float *top, *share;
  int8_t* lost;  // (batch, heads, queries, depth): what rounding takes from a bfloat16 output, see `lose`; or null
  View gradient, dq, dk, dv;
  float* dtable;  // (batch, heads, queries + keys - 1) in reverse, zeros at first; or null

  int8_t* rest(Index b, Index h, Index i) const {
    return lost ? lost + ((b * heads + h) * queries + i) * depth : nullptr;
  }
  Index blocks() const { return parts(queries, ROWS); }
  Index pitch() const { return queries + keys - 1; }
};

template <class T>
struct Buffer {
  T* data;
  explicit Buffer(Index count) : data(static_cast<T*>(std::aligned_alloc(64, parts(count * sizeof(T) + 1, 64) * 64))) {
    if (!data) throw std::bad_alloc();
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { std::free(data); }
  operator T*() const { return data; }
};

// work(next) is run by every thread, and takes tasks until there are none: which thread takes which changes no result
template <class Work>
void share(Index tasks, const Work& work) {
  std::atomic<Index> next{0};
  at::parallel_for(0, min<Index>(tasks, at::get_num_threads()), 1, [&](Index, Index) {
    work(next);
  });
}

// e^x for x <= 0, to a rounding; exactly 0 below e^-87, -inf included
inline float exponential(float x) {
  constexpr float round = 12582912.f;  // 1.5 * 2^23: a sum with it has no fraction left
  const float moved = x * 1.44269504088896341f + round, whole = moved - round;
  const float rest = x - whole * 0.693145751953125f - whole * 1.428606765330187e-06f;
  float p = 1.9875691500e-4f;
  p = p * rest + 1.3981999507e-3f;
  p = p * rest + 8.3334519073e-3f;
  p = p * rest + 4.1665795894e-2f;
  p = p * rest + 1.6666665459e-1f;
  p = p * rest + 5.0000001201e-1f;
  p = p * (rest * rest) + rest + 1.f;
  const float power = c10::bit_cast<float>(c10::bit_cast<int32_t>(p) + (c10::bit_cast<int32_t>(moved) << 23));
  return x > -87.f ? power : 0.f;
}

inline void narrow(float x, float& to) { to = x; }
// to the nearest, ties to even; there are no NaN here
inline void narrow(float x, c10::BFloat16& to) {
  const uint32_t bits = c10::bit_cast<uint32_t>(x);
  to.x = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// eight bits of what rounding takes from a number, and the number from both: floats in order are whole numbers in order
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

// PANEL rows as the columns of a right side; rows that are missing become 0
template <class T>
void pack_columns(const T* from, Index pitch, Index count, Index width, T* to) {
  const Index units = width * sizeof(T) / 4;  // a number, or a pair of 16-bit ones
  auto* unit = reinterpret_cast<char*>(to);
  if (count < PANEL) std::memset(unit, 0, PANEL * units * 4);
  for (Index j = 0; j < min(count, PANEL); ++j) {
    const auto* row = reinterpret_cast<const char*>(from + j * pitch);
    for (Index c = 0; c < units; ++c) std::memcpy(unit + (c * PANEL + j) * 4, row + c * 4, 4);
  }
}

// rows as the rows of a right side, up to `total`; rows that are missing become 0
template <class T>
void pack_rows(const T* from, Index pitch, Index count, Index total, Index width, T* to) {
  if (count < total) std::memset(static_cast<void*>(to + count / 2 * 2 * width), 0, (total - count / 2 * 2) * width * sizeof(T));
  if constexpr (!PAIRED<T>) {
    for (Index r = 0; r < count; ++r) std::memcpy(to + r * width, from + r * pitch, width * sizeof(T));
  } else {
    for (Index r = 0; r < count; r += 2) {
      const T *__restrict one = from + r * pitch, *__restrict two = one + pitch;
      T* __restrict out = to + r * width;
      if (r + 1 == count) {
        for (Index c = 0; c < width; ++c) out[2 * c] = one[c];
        continue;
      }
#pragma omp simd
      for (Index c = 0; c < width; ++c) out[2 * c] = one[c], out[2 * c + 1] = two[c];
    }
  }
}

// the bias of a row of a tile; if there are documents, a copy in `room` that hides those other than its own
inline const float* hide(const float* bias, const Index* documents, Index own, Index count, float* __restrict room) {
  if (!documents) return bias;
#pragma omp simd
  for (Index c = 0; c < count; ++c) room[c] = documents[c] == own ? bias[c] : NEVER;
  return room;
}

// whether two stretches of documents may have one in common
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
