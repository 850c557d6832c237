// Rotary embedding: (a, b) -> (a cos - b sin, b cos + a sin) for pairs of channels, with -sin in the backward pass.
//
// One of the two products of each result is rounded, the other is fused (fma), as in PyTorch's addcmul: the C++ and the
// PyTorch form agree bit for bit.

#ifdef __AVX__
#include <immintrin.h>
#endif

#include <cmath>
#include <cstring>

#include "job.h"

namespace {

using c10::bit_cast;

constexpr Index TOKENS = 64;       // tokens rotated in all heads before the next ones: their angles stay in the cache
constexpr size_t LARGE = 1 << 20;  // results of more bytes are written past the caches
constexpr Index LINE = 64;         // bytes of a cache line
constexpr Index AHEAD = TOKENS;    // rows that are prefetched: too few follow each other for a hardware prefetcher

struct Job {
  bool back, bfloat16, interleaved;
  Index batch, heads, tokens, width, pairs;
  View x, out;    // float or bfloat16
  View cos, sin;  // float; strides of 0 where heads or sequences share them
};

// `narrow` is safe for NaN here: one that came from 16 bits has zeros in its low bits, so rounding does not carry
template <class T>
void turn_halves(const T* __restrict x, T* __restrict out, const float* __restrict cos, const float* __restrict sin,
                 Index pairs, float sign) {
#pragma omp simd
  for (Index m = 0; m < pairs; ++m) {
    const float a = x[m], b = x[m + pairs], s = sin[m] * sign;
    narrow(std::fma(-b, s, a * cos[m]), out[m]);
    narrow(std::fma(a, s, b * cos[m]), out[m + pairs]);
  }
}

void turn_neighbours(const float* __restrict x, float* __restrict out, const float* __restrict cos,
                     const float* __restrict sin, Index pairs, float sign) {
#pragma omp simd
  for (Index m = 0; m < pairs; ++m) {
    const float a = x[2 * m], b = x[2 * m + 1], s = sin[m] * sign;
    out[2 * m] = std::fma(-b, s, a * cos[m]);
    out[2 * m + 1] = std::fma(a, s, b * cos[m]);
  }
}

// a pair of neighbouring bfloat16 numbers is read as one 32-bit word, so no shuffle is needed
void turn_neighbours(const c10::BFloat16* __restrict x, c10::BFloat16* __restrict out, const float* __restrict cos,
                     const float* __restrict sin, Index pairs, float sign) {
#pragma omp simd
  for (Index m = 0; m < pairs; ++m) {
    uint32_t both;
    std::memcpy(&both, x + 2 * m, 4);
    const float a = bit_cast<float>(both << 16), b = bit_cast<float>(both & 0xffff0000u), s = sin[m] * sign;
    c10::BFloat16 first, second;
    narrow(std::fma(-b, s, a * cos[m]), first);
    narrow(std::fma(a, s, b * cos[m]), second);
    both = first.x | static_cast<uint32_t>(second.x) << 16;
    std::memcpy(static_cast<void*>(out + 2 * m), &both, 4);
  }
}

// Explicit intrinsics: rows are written past the caches without a copy on the way, and compilers do not generate the
// instruction that rounds 32 numbers to bfloat16. Without that instruction their code for bfloat16 is as fast.
#ifdef __AVX2__
#ifdef __AVX512BF16__
constexpr bool ROUNDS = true;
#else
constexpr bool ROUNDS = false;
#endif
template <Index PAIRS, class T>
constexpr bool BY_HAND = PAIRS > 0 && (sizeof(T) == 4 ? PAIRS % 8 == 0 : ROUNDS && PAIRS % 32 == 0);

inline void put(void* to, __m256i row, bool past) {
  past ? _mm256_stream_si256(static_cast<__m256i*>(to), row) : _mm256_storeu_si256(static_cast<__m256i*>(to), row);
}

// eight pairs
struct Turned8 {
  __m256 first, second;
  Turned8(__m256 a, __m256 b, const float* cos, const float* sin, float sign) {
    const __m256 c = _mm256_loadu_ps(cos), s = _mm256_mul_ps(_mm256_loadu_ps(sin), _mm256_set1_ps(sign));
    first = _mm256_fnmadd_ps(b, s, _mm256_mul_ps(a, c));
    second = _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c));
  }
};

[[gnu::always_inline]] inline void turn_halves(const float* x, float* out, const float* cos, const float* sin,
                                               Index pairs, float sign, bool past) {
  for (Index m = 0; m < pairs; m += 8) {
    const Turned8 now(_mm256_loadu_ps(x + m), _mm256_loadu_ps(x + m + pairs), cos + m, sin + m, sign);
    put(out + m, _mm256_castps_si256(now.first), past);
    put(out + m + pairs, _mm256_castps_si256(now.second), past);
  }
}

[[gnu::always_inline]] inline void turn_neighbours(const float* x, float* out, const float* cos, const float* sin,
                                                   Index pairs, float sign, bool past) {
  const __m256i twice = _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0);
  const __m256 signs = _mm256_mul_ps(_mm256_set1_ps(sign), _mm256_set_ps(1, -1, 1, -1, 1, -1, 1, -1));
  for (Index m = 0; m < pairs; m += 4) {
    const __m256 both = _mm256_loadu_ps(x + 2 * m), exchanged = _mm256_permute_ps(both, 0xb1);
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cos + m)), twice);
    const __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sin + m)), twice);
    const __m256 turned = _mm256_fmadd_ps(exchanged, _mm256_mul_ps(s, signs), _mm256_mul_ps(both, c));
    put(out + 2 * m, _mm256_castps_si256(turned), past);
  }
}
#else
template <Index PAIRS, class T>
constexpr bool BY_HAND = false;
#endif

#ifdef __AVX512BF16__
// sixteen pairs
struct Turned {
  __m512 first, second;
  Turned(__m512i left, __m512i right, const float* cos, const float* sin, float sign) {
    const __m512 a = _mm512_castsi512_ps(left), b = _mm512_castsi512_ps(right), c = _mm512_loadu_ps(cos);
    const __m512 s = _mm512_mul_ps(_mm512_loadu_ps(sin), _mm512_set1_ps(sign));
    first = _mm512_fnmadd_ps(b, s, _mm512_mul_ps(a, c));
    second = _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c));
  }
};

inline __m512i widened(const c10::BFloat16* x) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))), 16);
}
// subnormal numbers (below 1.2e-38) become 0
inline __m512i rounded(__m512 low, __m512 high) { return bit_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }
inline void put(c10::BFloat16* to, __m512i row, bool past) {
  past ? _mm512_stream_si512(reinterpret_cast<__m512i*>(to), row) : _mm512_storeu_si512(to, row);
}

[[gnu::always_inline]] inline void turn_halves(const c10::BFloat16* x, c10::BFloat16* out, const float* cos,
                                               const float* sin, Index pairs, float sign, bool past) {
  for (Index m = 0; m < pairs; m += 32) {
    const Index n = m + 16;
    const Turned low(widened(x + m), widened(x + m + pairs), cos + m, sin + m, sign);
    const Turned high(widened(x + n), widened(x + n + pairs), cos + n, sin + n, sign);
    put(out + m, rounded(low.first, high.first), past);
    put(out + m + pairs, rounded(low.second, high.second), past);
  }
}

[[gnu::always_inline]] inline void turn_neighbours(const c10::BFloat16* x, c10::BFloat16* out, const float* cos,
                                                   const float* sin, Index pairs, float sign, bool past) {
  const __m512i upper = _mm512_set1_epi32(0xffff0000u);
  const __m512i in_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                            21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (Index m = 0; m < pairs; m += 16) {
    const __m512i both = _mm512_loadu_si512(x + 2 * m);
    const Turned now(_mm512_slli_epi32(both, 16), _mm512_and_si512(both, upper), cos + m, sin + m, sign);
    put(out + 2 * m, _mm512_permutexvar_epi16(in_turns, rounded(now.first, now.second)), past);
  }
}
#endif

// rows in memory with a constant stride
template <class T>
struct Rows {
  T* data;
  Index step;
  Rows(const View& view, bool beside, Index b, Index h, Index n)
      : data(view.row<T>(b, h, n)), step(beside ? view.head : view.token) {}
  T* operator[](Index i) const { return data + i * step; }
};

// non-temporal stores: caches need not fetch lines that are fully overwritten
#ifdef __AVX__
constexpr bool STREAMS = true;
inline void stream(void* to, const void* from, Index bytes) {
  for (Index i = 0; i < bytes / 32; ++i)
    _mm256_stream_si256(static_cast<__m256i*>(to) + i, _mm256_load_si256(static_cast<const __m256i*>(from) + i));
}
inline void finish_streams() { _mm_sfence(); }
#else
constexpr bool STREAMS = false;
inline void stream(void*, const void*, Index) {}
inline void finish_streams() {}
#endif

// PAIRS: number of pairs at compile time, so that the loop is unrolled; 0: taken from the job
template <Index PAIRS, class T>
void turn_rows(const Job& job, Rows<const T> x, Rows<T> out, Rows<const float> cos, Rows<const float> sin, Index count,
               T* room) {
  const Index pairs = PAIRS ? PAIRS : job.pairs, turning = 2 * pairs, still = job.width - turning;
  const bool interleaved = job.interleaved;
  const float sign = job.back ? -1.f : 1.f;
  for (Index i = 0; i < count; ++i) {
    for (Index c = 0; c < turning; c += 64 / sizeof(T)) __builtin_prefetch(x[i + AHEAD] + c);
    if constexpr (BY_HAND<PAIRS, T>) {
      interleaved ? turn_neighbours(x[i], out[i], cos[i], sin[i], pairs, sign, room)
                  : turn_halves(x[i], out[i], cos[i], sin[i], pairs, sign, room);
    } else {
      T* to = room ? room : out[i];
      interleaved ? turn_neighbours(x[i], to, cos[i], sin[i], pairs, sign)
                  : turn_halves(x[i], to, cos[i], sin[i], pairs, sign);
      if (room) stream(out[i], room, turning * sizeof(T));
    }
    if (still) std::memcpy(static_cast<void*>(out[i] + turning), x[i] + turning, still * sizeof(T));
  }
}

template <class T>
void turn(const Job& job) {
  const Index cuts = parts(job.tokens, TOKENS), strides = job.out.batch | job.out.head | job.out.token;
  const bool aligned = (bit_cast<Index>(job.out.data) | ((strides | 2 * job.pairs) * sizeof(T))) % LINE == 0;
  const bool streams = STREAMS && aligned && job.batch * job.heads * job.tokens * job.width * sizeof(T) >= LARGE;
  const bool beside = job.out.head < job.out.token;
  auto* const work = job.pairs == 16   ? turn_rows<16, T>
                     : job.pairs == 32 ? turn_rows<32, T>
                     : job.pairs == 64 ? turn_rows<64, T>
                                       : turn_rows<0, T>;
  parallel_for(job.batch * cuts, 1, [&](Index begin, Index end) {
    Buffer<T> room(2 * job.pairs);
    for (Index task = begin; task < end; ++task) {
      const Index b = task / cuts, first = task % cuts * TOKENS, count = min(TOKENS, job.tokens - first);
      // in memory order: heads of a token, or tokens of a head
      for (Index i = 0; i < (beside ? count : job.heads); ++i) {
        const Index h = beside ? 0 : i, n = beside ? first + i : first;
        work(job, {job.x, beside, b, h, n}, {job.out, beside, b, h, n}, {job.cos, beside, b, h, n},
             {job.sin, beside, b, h, n}, beside ? job.heads : count, streams ? room.data : nullptr);
      }
    }
    if (streams) finish_streams();
  });
}

}  // namespace

extern "C" const char* ordinate_rotation(const Job* job) {
  return guarded([&] { job->bfloat16 ? turn<c10::BFloat16>(*job) : turn<float>(*job); });
}
