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

constexpr Index TOKENS = 128;      // tokens rotated in all heads before the next ones: their angles stay in the cache
constexpr size_t LARGE = 1 << 20;  // results of more bytes are written past the caches
constexpr Index LINE = 64;         // bytes of a cache line
constexpr Index AHEAD = 32;        // rows of all heads that are prefetched: too few follow each other in memory for
                                   // a hardware prefetcher

struct Job {
  bool back, bfloat16, interleaved;
  Index batch, heads, tokens, width, pairs;
  View x, out;    // float or bfloat16
  View cos, sin;  // float; strides of 0 where heads or sequences share them
};

// `narrow` is safe for NaN here: one that came from 16 bits has zeros in its low bits, so rounding does not carry
template <class T>
void turn_halves(const T* __restrict x, T* __restrict out, const float* __restrict cos, const float* __restrict sin,
                 Index pairs) {
#pragma omp simd
  for (Index m = 0; m < pairs; ++m) {
    const float a = x[m], b = x[m + pairs], s = sin[m];
    narrow(std::fma(-b, s, a * cos[m]), out[m]);
    narrow(std::fma(a, s, b * cos[m]), out[m + pairs]);
  }
}

template <class T>
void turn_neighbours(const T* __restrict x, T* __restrict out, const float* __restrict cos,
                     const float* __restrict sin, Index pairs) {
#pragma omp simd
  for (Index m = 0; m < pairs; ++m) {
    const float a = x[2 * m], b = x[2 * m + 1], s = sin[m];
    narrow(std::fma(-b, s, a * cos[m]), out[2 * m]);
    narrow(std::fma(a, s, b * cos[m]), out[2 * m + 1]);
  }
}

// a pair of neighbouring bfloat16 numbers is read as one 32-bit word, so no shuffle is needed
void turn_neighbours(const c10::BFloat16* __restrict x, c10::BFloat16* __restrict out, const float* __restrict cos,
                     const float* __restrict sin, Index pairs) {
#pragma omp simd
  for (Index m = 0; m < pairs; ++m) {
    uint32_t both;
    std::memcpy(&both, x + 2 * m, 4);
    const float a = bit_cast<float>(both << 16), b = bit_cast<float>(both & 0xffff0000u), s = sin[m];
    c10::BFloat16 first, second;
    narrow(std::fma(-b, s, a * cos[m]), first);
    narrow(std::fma(a, s, b * cos[m]), second);
    both = first.x | static_cast<uint32_t>(second.x) << 16;
    std::memcpy(static_cast<void*>(out + 2 * m), &both, 4);
  }
}

// Explicit intrinsics: rows are written past the caches without a copy on the way, and compilers neither generate the
// instruction that rounds 32 numbers to bfloat16 nor, where it is missing, round 16 at a time.
#ifdef __AVX2__
// pairs of bfloat16 that are rotated at a time
#ifdef __AVX512BF16__
constexpr Index STEP = 32;
#else
constexpr Index STEP = 16;
#endif
template <Index PAIRS, class T>
constexpr bool BY_HAND = PAIRS > 0 && PAIRS % (sizeof(T) == 4 ? 16 : STEP) == 0;

// loads are the limit: without the empty statement the compiler loads again for each use of a number
inline __m256 once(__m256 x) {
  asm("" : "+x"(x));
  return x;
}
inline __m256 load(const float* from) { return once(_mm256_loadu_ps(from)); }
inline __m256i load(const c10::BFloat16* from) {
  return _mm256_castps_si256(load(reinterpret_cast<const float*>(from)));
}
template <bool PAST>
void put(void* to, __m256i row) {
  PAST ? _mm256_stream_si256(static_cast<__m256i*>(to), row) : _mm256_storeu_si256(static_cast<__m256i*>(to), row);
}

// a row of each of some heads that share their angles
template <class T, Index ROWS>
using Sharing = T* const (&)[ROWS];

// angles of eight pairs
struct Angles8 {
  __m256 cos, sin;
  Angles8(const float* cos, const float* sin) : cos(load(cos)), sin(load(sin)) {}
};
// eight pairs
struct Turned8 {
  __m256 first, second;
  Turned8(__m256 a, __m256 b, const Angles8& by)
      : first(_mm256_fnmadd_ps(b, by.sin, _mm256_mul_ps(a, by.cos))),
        second(_mm256_fmadd_ps(a, by.sin, _mm256_mul_ps(b, by.cos))) {}
};

// the 16-bit halves of eight words, as float
inline __m256 lower(__m256i words) { return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)); }
inline __m256 upper(__m256i words) {
  return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(0xffff0000u)));
}
// Rounds to bfloat16, as `narrow`: `low` to the lower halves of eight words, `high` to the upper ones. Halves are rounded
// up. Ties, one number in 65,536, must go to even: they are noticed, and rows that have any are rotated again with TO_EVEN.
template <bool TO_EVEN>
struct Rounding {
  __m256i least = _mm256_set1_epi16(-1);  // in lower halves of words, of what is cut off; 0 after a tie

  __m256i operator()(__m256 low, __m256 high) {
    const __m256i half = _mm256_set1_epi32(0x8000);
    const __m256i even = _mm256_add_epi32(_mm256_castps_si256(low), half);
    const __m256i odd = _mm256_add_epi32(_mm256_castps_si256(high), half);
    const __m256i kept = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
    if (TO_EVEN) {
      const __m256i lost = _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xaa);
      return _mm256_andnot_si256(_mm256_subs_epu16(_mm256_set1_epi16(1), lost), kept);
    }
    least = _mm256_min_epu16(least, _mm256_min_epu16(even, odd));
    return kept;
  }
  bool missed_ties() const {
    return !TO_EVEN && _mm256_movemask_epi8(_mm256_cmpeq_epi16(least, _mm256_setzero_si256())) & 0x33333333;
  }
};

template <bool PAST, Index ROWS>
[[gnu::always_inline]] inline void turn_halves(Sharing<const float, ROWS> x, Sharing<float, ROWS> out, const float* cos,
                                               const float* sin, Index pairs) {
  // whole lines of memory, one after the other: written past the caches, halves of several lines take longer
  for (Index m = 0; m < pairs; m += 16) {
    const Index n = m + 8;
    const Angles8 of_low(cos + m, sin + m), of_high(cos + n, sin + n);
    for (Index r = 0; r < ROWS; ++r) {
      const Turned8 low(load(x[r] + m), load(x[r] + m + pairs), of_low);
      const Turned8 high(load(x[r] + n), load(x[r] + n + pairs), of_high);
      put<PAST>(out[r] + m, _mm256_castps_si256(low.first));
      put<PAST>(out[r] + n, _mm256_castps_si256(high.first));
      put<PAST>(out[r] + m + pairs, _mm256_castps_si256(low.second));
      put<PAST>(out[r] + n + pairs, _mm256_castps_si256(high.second));
    }
  }
}

// cosine and signed sine of four pairs of neighbours, for both numbers of each
struct Neighbours4 {
  __m256 cos, sin;
  Neighbours4(const float* from_cos, const float* from_sin) : cos(twice(from_cos)) {
    sin = _mm256_mul_ps(twice(from_sin), _mm256_set_ps(1, -1, 1, -1, 1, -1, 1, -1));
  }
  static __m256 twice(const float* from) {
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0));
  }
  __m256i turn(const float* x) const {
    const __m256 both = load(x), exchanged = _mm256_permute_ps(both, 0xb1);
    return _mm256_castps_si256(_mm256_fmadd_ps(exchanged, sin, _mm256_mul_ps(both, cos)));
  }
};

template <bool PAST, Index ROWS>
[[gnu::always_inline]] inline void turn_neighbours(Sharing<const float, ROWS> x, Sharing<float, ROWS> out,
                                                   const float* cos, const float* sin, Index pairs) {
  for (Index m = 0; m < pairs; m += 8) {
    const Neighbours4 low(cos + m, sin + m), high(cos + m + 4, sin + m + 4);
    for (Index r = 0; r < ROWS; ++r) {
      put<PAST>(out[r] + 2 * m, low.turn(x[r] + 2 * m));
      put<PAST>(out[r] + 2 * m + 8, high.turn(x[r] + 2 * m + 8));
    }
  }
}

#ifndef __AVX512BF16__
// angles of sixteen pairs, those of even index first
struct Angles16 {
  Angles8 even, odd;
  Angles16(const float* cos, const float* sin) : even(cos, sin), odd(cos + 8, sin + 8) {}
};
// sixteen pairs
struct Turned16 {
  __m256i first, second;
  template <class Round>
  Turned16(__m256i a, __m256i b, const Angles16& by, Round& rounded) {
    const Turned8 even(lower(a), lower(b), by.even), odd(upper(a), upper(b), by.odd);
    first = rounded(even.first, odd.first), second = rounded(even.second, odd.second);
  }
};

template <bool PAST, Index ROWS, bool TO_EVEN = false>
[[gnu::always_inline]] inline void turn_halves(Sharing<const c10::BFloat16, ROWS> x, Sharing<c10::BFloat16, ROWS> out,
                                               const float* cos, const float* sin, Index pairs) {
  Rounding<TO_EVEN> rounded;
  for (Index m = 0; m < pairs; m += 32) {
    // a whole line of memory, unless a row has no more than half of one
    const Index n = m + 16;
    const bool more = n < pairs;
    const Angles16 of_low(cos + m, sin + m), of_high(cos + (more ? n : m), sin + (more ? n : m));
    for (Index r = 0; r < ROWS; ++r) {
      const Turned16 low(load(x[r] + m), load(x[r] + m + pairs), of_low, rounded);
      if (more) {
        const Turned16 high(load(x[r] + n), load(x[r] + n + pairs), of_high, rounded);
        put<PAST>(out[r] + m, low.first);
        put<PAST>(out[r] + n, high.first);
        put<PAST>(out[r] + m + pairs, low.second);
        put<PAST>(out[r] + n + pairs, high.second);
      } else {
        put<PAST>(out[r] + m, low.first);
        put<PAST>(out[r] + m + pairs, low.second);
      }
    }
  }
  if constexpr (!TO_EVEN)
    if (rounded.missed_ties()) turn_halves<PAST, ROWS, true>(x, out, cos, sin, pairs);
}

template <bool PAST, Index ROWS, bool TO_EVEN = false>
[[gnu::always_inline]] inline void turn_neighbours(Sharing<const c10::BFloat16, ROWS> x,
                                                   Sharing<c10::BFloat16, ROWS> out, const float* cos,
                                                   const float* sin, Index pairs) {
  Rounding<TO_EVEN> rounded;
  for (Index m = 0; m < pairs; m += 16) {
    const Index n = m + 8;
    const Angles8 of_low(cos + m, sin + m), of_high(cos + n, sin + n);
    for (Index r = 0; r < ROWS; ++r) {
      const __m256i a = load(x[r] + 2 * m), b = load(x[r] + 2 * n);
      const Turned8 low(lower(a), upper(a), of_low), high(lower(b), upper(b), of_high);
      put<PAST>(out[r] + 2 * m, rounded(low.first, low.second));
      put<PAST>(out[r] + 2 * n, rounded(high.first, high.second));
    }
  }
  if constexpr (!TO_EVEN)
    if (rounded.missed_ties()) turn_neighbours<PAST, ROWS, true>(x, out, cos, sin, pairs);
}
#endif
#else
template <Index PAIRS, class T>
constexpr bool BY_HAND = false;
#endif

#ifdef __AVX512BF16__
// angles of sixteen pairs
struct Angles {
  __m512 cos, sin;
  Angles(const float* cos, const float* sin) : cos(_mm512_loadu_ps(cos)), sin(_mm512_loadu_ps(sin)) {}
};
// sixteen pairs
struct Turned {
  __m512 first, second;
  Turned(__m512i left, __m512i right, const Angles& by) {
    const __m512 a = _mm512_castsi512_ps(left), b = _mm512_castsi512_ps(right);
    first = _mm512_fnmadd_ps(b, by.sin, _mm512_mul_ps(a, by.cos));
    second = _mm512_fmadd_ps(a, by.sin, _mm512_mul_ps(b, by.cos));
  }
};

inline __m512i widened(const c10::BFloat16* x) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))), 16);
}
// subnormal numbers (below 1.2e-38) become 0
inline __m512i rounded(__m512 low, __m512 high) { return bit_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }
template <bool PAST>
void put(c10::BFloat16* to, __m512i row) {
  PAST ? _mm512_stream_si512(reinterpret_cast<__m512i*>(to), row) : _mm512_storeu_si512(to, row);
}

template <bool PAST, Index ROWS>
[[gnu::always_inline]] inline void turn_halves(Sharing<const c10::BFloat16, ROWS> x, Sharing<c10::BFloat16, ROWS> out,
                                               const float* cos, const float* sin, Index pairs) {
  for (Index m = 0; m < pairs; m += 32) {
    const Index n = m + 16;
    const Angles of_low(cos + m, sin + m), of_high(cos + n, sin + n);
    for (Index r = 0; r < ROWS; ++r) {
      const Turned low(widened(x[r] + m), widened(x[r] + m + pairs), of_low);
      const Turned high(widened(x[r] + n), widened(x[r] + n + pairs), of_high);
      put<PAST>(out[r] + m, rounded(low.first, high.first));
      put<PAST>(out[r] + m + pairs, rounded(low.second, high.second));
    }
  }
}

template <bool PAST, Index ROWS>
[[gnu::always_inline]] inline void turn_neighbours(Sharing<const c10::BFloat16, ROWS> x,
                                                   Sharing<c10::BFloat16, ROWS> out, const float* cos,
                                                   const float* sin, Index pairs) {
  const __m512i upper = _mm512_set1_epi32(0xffff0000u);
  const __m512i in_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                            21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (Index m = 0; m < pairs; m += 16) {
    const Angles by(cos + m, sin + m);
    for (Index r = 0; r < ROWS; ++r) {
      const __m512i both = _mm512_loadu_si512(x[r] + 2 * m);
      const Turned now(_mm512_slli_epi32(both, 16), _mm512_and_si512(both, upper), by);
      put<PAST>(out[r] + 2 * m, _mm512_permutexvar_epi16(in_turns, rounded(now.first, now.second)));
    }
  }
}
#endif

// rows in memory with a constant stride
template <class T>
struct Rows {
  T* data;
  Index step;
  Rows(T* data, Index step) : data(data), step(step) {}
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

#if defined(__AVX2__) && !defined(__AVX512BF16__)
template <Index PAIRS, class T>
constexpr bool APART = BY_HAND<PAIRS, T> && sizeof(T) == 2;
// times a sign, and of each 16 numbers those of even index first
inline void set_apart(const float* from, float* to, Index count, float sign) {
  const __m256 signs = _mm256_set1_ps(sign);
  for (Index m = 0; m < count; m += 16) {
    const __m256 low = _mm256_mul_ps(_mm256_loadu_ps(from + m), signs);
    const __m256 high = _mm256_mul_ps(_mm256_loadu_ps(from + m + 8), signs);
    const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
    const __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
    _mm256_storeu_ps(to + m, _mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8)));
    _mm256_storeu_ps(to + m + 8, _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8)));
  }
}
#else
template <Index PAIRS, class T>
constexpr bool APART = false;
inline void set_apart(const float*, float*, Index, float) {}
#endif

// Cosines or sines of some rows as the kernels read them: times a sign, and perhaps set apart.
class Waves {
  Index pairs;
  Buffer<float> data;

 public:
  Waves(Index pairs, Index rows) : pairs(pairs), data(pairs * rows) {}
  Rows<const float> read(Rows<const float> from, Index rows, float sign, bool apart) {
    const Index step = from.step ? pairs : 0;
    for (Index i = 0; i < (step ? rows : 1); ++i) {
      const float* __restrict row = from[i];
      float* __restrict to = data + i * pairs;
      if (apart) {
        set_apart(row, to, pairs, sign);
      } else {
        for (Index m = 0; m < pairs; ++m) to[m] = sign * row[m];
      }
    }
    return {data, step};
  }
};

// Some rows, in memory order: heads of a token, or tokens of a head.
struct Where {
  Index b, h, n, count;
  bool beside;
};

// Rows of ROWS heads with the same angles. PAIRS: number of pairs at compile time, so that loops are unrolled; 0: taken
// from the job.
template <Index PAIRS, bool PAST, Index ROWS, class T>
void turn_rows(const Job& job, const Where& at, Rows<const float> cos, Rows<const float> sin, T* room) {
  const Index pairs = PAIRS ? PAIRS : job.pairs, turning = 2 * pairs, still = job.width - turning;
  const bool interleaved = job.interleaved;
  const Rows<const T> x(job.x, at.beside, at.b, at.h, at.n);
  const Rows<T> out(job.out, at.beside, at.b, at.h, at.n);
  for (Index i = 0; i < at.count; ++i) {
    const T* from[ROWS];
    T* to[ROWS];
    for (Index r = 0; r < ROWS; ++r) {
      from[r] = x[i] + r * job.x.head, to[r] = out[i] + r * job.out.head;
      for (Index c = 0; c < turning; c += LINE / sizeof(T)) __builtin_prefetch(from[r] + AHEAD / ROWS * x.step + c);
      if (still) std::memcpy(static_cast<void*>(to[r] + turning), from[r] + turning, still * sizeof(T));
    }
    if constexpr (BY_HAND<PAIRS, T>) {
      interleaved ? turn_neighbours<PAST, ROWS>(from, to, cos[i], sin[i], pairs)
                  : turn_halves<PAST, ROWS>(from, to, cos[i], sin[i], pairs);
    } else {
      for (Index r = 0; r < ROWS; ++r) {
        T* made = PAST ? room : to[r];
        interleaved ? turn_neighbours(from[r], made, cos[i], sin[i], pairs)
                    : turn_halves(from[r], made, cos[i], sin[i], pairs);
        if (PAST) stream(to[r], room, turning * sizeof(T));
      }
    }
  }
}

// the most heads that are rotated at a time; with four in 16 bits registers are too few
template <class T>
constexpr Index TOGETHER = sizeof(T) == 4 ? 4 : 2;

template <Index PAIRS, bool PAST, class T>
void turn_tokens(const Job& job, Index b, Index first, Index tokens, bool beside, Waves& cosines, Waves& sines,
                 T* room) {
  const bool apart = APART<PAIRS, T> && !job.interleaved, shared = !(job.cos.head | job.sin.head);
  const Index count = beside ? job.heads : tokens, times = beside ? tokens : job.heads;
  Rows<const float> cos(nullptr, 0), sin(nullptr, 0);
  for (Index i = 0; i < times;) {
    const Where at{b, beside ? 0 : i, beside ? first + i : first, count, beside};
    if (beside || i == 0 || !shared) {
      cos = cosines.read({job.cos, beside, b, at.h, at.n}, count, 1.f, apart);
      sin = sines.read({job.sin, beside, b, at.h, at.n}, count, job.back ? -1.f : 1.f, apart);
    }
    if (shared && !beside && i + TOGETHER<T> <= times) {
      turn_rows<PAIRS, PAST, TOGETHER<T>, T>(job, at, cos, sin, room);
      i += TOGETHER<T>;
    } else {
      turn_rows<PAIRS, PAST, 1, T>(job, at, cos, sin, room);
      ++i;
    }
  }
}

template <Index PAIRS, class T>
void turn_as(const Job& job) {
  const Index cuts = parts(job.tokens, TOKENS), strides = job.out.batch | job.out.head | job.out.token;
  const bool aligned = (bit_cast<Index>(job.out.data) | ((strides | 2 * job.pairs) * sizeof(T))) % LINE == 0;
  const bool streams = STREAMS && aligned && job.batch * job.heads * job.tokens * job.width * sizeof(T) >= LARGE;
  const bool beside = job.out.head < job.out.token;
  auto* const work = streams ? turn_tokens<PAIRS, true, T> : turn_tokens<PAIRS, false, T>;
  parallel_for(job.batch * cuts, 1, [&](Index begin, Index end) {
    Buffer<T> room(2 * job.pairs);
    const Index most = beside ? job.heads : min(TOKENS, job.tokens);
    Waves cosines(job.pairs, most), sines(job.pairs, most);
    for (Index task = begin; task < end; ++task) {
      const Index b = task / cuts, first = task % cuts * TOKENS;
      work(job, b, first, min(TOKENS, job.tokens - first), beside, cosines, sines, room);
    }
    if (streams) finish_streams();
  });
}

template <class T>
void turn(const Job& job) {
  switch (job.pairs) {
    case 16: return turn_as<16, T>(job);
    case 32: return turn_as<32, T>(job);
    case 64: return turn_as<64, T>(job);
    default: return turn_as<0, T>(job);
  }
}

}  // namespace

extern "C" const char* ordinate_rotation(const Job* job) {
  return guarded([&] { job->bfloat16 ? turn<c10::BFloat16>(*job) : turn<float>(*job); });
}
