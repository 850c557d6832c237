// Shared by all kernels: tensor views, buffers, threads, exponentials, rounding and errors.
//
// Each kernel has its own Job struct, mirrored field by field in Python, and one entry point, ordinate_<name>.

#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/bit_cast.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <string>

// PyTorch's threads, declared here: parsing the header that declares them takes as long as the rest of this file
namespace at {
int get_num_threads();
bool in_parallel_region();
}  // namespace at

namespace {

using std::min;
using Index = int64_t;

constexpr float NEVER = -std::numeric_limits<float>::infinity();

Index parts(Index whole, Index size) { return (whole + size - 1) / size; }

struct View {
  void* data;
  Index batch, head, token;  // strides [elements]; the stride of channels is 1

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

// Run work(begin, end) for consecutive ranges of at least `grain` (the last may be smaller) that cover [0, count), on
// PyTorch's threads. Rethrows an exception of one of them.
template <class Work>
void parallel_for(Index count, Index grain, const Work& work) {
  if (count <= 0) return;
  if (count <= grain || at::in_parallel_region() || at::get_num_threads() == 1) return work(0, count);
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr failure;
#pragma omp parallel
  {
    const Index threads = min<Index>(omp_get_num_threads(), parts(count, grain)), size = parts(count, threads);
    const Index begin = omp_get_thread_num() * size;
    try {
      if (begin < count) work(begin, min(count, begin + size));
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// Run work(next) on every thread; each takes tasks from the shared counter until none is left. Tasks must not depend on
// each other, so that the assignment to threads does not affect results.
template <class Work>
void share(Index tasks, const Work& work) {
  std::atomic<Index> next{0};
  parallel_for(min<Index>(tasks, at::get_num_threads()), 1, [&](Index, Index) {
    work(next);
  });
}

// e^x for x <= 0 with an error of about one rounding; exactly 0 for x <= -87, -inf included. Without branches, so that
// loops vectorise; a NaN becomes 0 (see `power` in performer.h and wkv.cpp).
inline float exponential(float x) {
  // adding 1.5 * 2^23 rounds to an integer, which is then in the low bits of the sum: shifted to the exponent below
  constexpr float round = 12582912.f;
  const float moved = x * 1.44269504088896341f + round, whole = moved - round;
  const float rest = x - whole * 0.693145751953125f - whole * 1.428606765330187e-06f;
  float p = 1.9875691500e-4f;
  p = p * rest + 1.3981999507e-3f;
  p = p * rest + 8.3334519073e-3f;
  p = p * rest + 4.1665795894e-2f;
  p = p * rest + 1.6666665459e-1f;
  p = p * rest + 5.0000001201e-1f;
  p = p * (rest * rest) + rest + 1.f;
  const float power = c10::bit_cast<float>(c10::bit_cast<uint32_t>(p) + (c10::bit_cast<uint32_t>(moved) << 23));
  return x > -87.f ? power : 0.f;
}

inline void narrow(float x, float& to) { to = x; }
// round to nearest, ties to even; not for NaN, which the carry could turn into infinity
inline void narrow(float x, c10::BFloat16& to) {
  const uint32_t bits = c10::bit_cast<uint32_t>(x);
  to.x = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}


// Round many numbers; with AVX512-BF16 subnormal numbers (below 1.2e-38) become 0.
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

// Return the message of an exception, or null: exceptions must not cross the C boundary. The text is valid until the
// next failure on this thread.
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
