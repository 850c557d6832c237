// What all sources share: views of tensors, memory, threads, exponentials, rounding, errors.
//
// Each source has a job of its own, laid out alike in Python, and one function, ordinate_<its name>.

#pragma once

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/bit_cast.h>
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <string>

namespace {

using std::min;
using Index = int64_t;

constexpr float NEVER = -std::numeric_limits<float>::infinity();

Index parts(Index whole, Index size) { return (whole + size - 1) / size; }

struct View {
  void* data;
  Index batch, head, token;  // strides; channels lie side by side

  template <class T>
  T* row(Index b, Index h, Index n = 0) const {
    return static_cast<T*>(data) + b * batch + h * head + n * token;
  }
};

template <class T>
struct Buffer {
  T* data;
  explicit Buffer(Index count)
      : data(static_cast<T*>(std::aligned_alloc(64, parts(count * sizeof(T) + 1, 64) * 64))) {
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


// many at once; where the processor has an instruction for it, numbers below 1.2e-38 become 0
inline void narrow(const float* __restrict from, c10::BFloat16* __restrict to, Index count) {
  Index c = 0;
#ifdef __AVX512BF16__
  for (; c + 32 <= count; c += 32) {
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + c + 16), _mm512_loadu_ps(from + c));
    std::memcpy(static_cast<void*>(to + c), &both, sizeof both);
  }
#endif
#pragma omp simd
  for (Index rest = c; rest < count; ++rest) narrow(from[rest], to[rest]);
}

// what went wrong, or null; the text lives until the next failure of this thread
template <class Work>
const char* guarded(const Work& work) {
  thread_local std::string message;
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}

}  // namespace
