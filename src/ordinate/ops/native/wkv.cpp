// WKV operator of RWKV-4, forward and backward: one pass over time, vectorised over channels.

#include <cmath>

#include "job.h"

namespace {

constexpr Index BLOCK = 256;       // channels per task
constexpr float NOTHING = -1e38f;  // exponent of an empty sum

struct Job {
  bool back;
  Index batch, tokens, channels;
  const float *decay, *bonus;   // (channels): logarithms
  const float *k, *v;           // (batch, tokens, channels), as are y, top, share, gradient, dk and dv
  const float* start;           // (batch, 3, channels): numerator and denominator divided by e^exponent, exponent
  float* end;                   // the same after the last token; only the first two have gradients; gradient or null
  float *y, *top, *share;       // 1 / denominator of a token is share * e^-top
  const float *gradient, *gradient_end;
  float *dk, *dv, *ddecay, *dbonus, *dstart;  // ddecay and dbonus are (batch, channels)

  Index sums(Index b, Index which) const { return (b * 3 + which) * channels; }
};

// e^x for x <= 0; NaN is propagated
inline float power(float x) { return x == x ? exponential(x) : x; }

// factors that bring two sums with different exponents to the larger exponent
struct Scales {
  float top, one, two;
  Scales(float p, float q) : top(p > q ? p : q) {
    const float less = power(p > q ? q - p : p - q);
    one = p > q ? 1.f : less;
    two = p > q ? less : 1.f;
  }
};

void forward(const Job& job, Index b, Index first, Index count) {
  float a[BLOCK], d[BLOCK], p[BLOCK], *sums[] = {a, d, p};
  for (Index i = 0; i < 3; ++i) std::copy_n(job.start + job.sums(b, i) + first, count, sums[i]);
  const float *decay = job.decay + first, *bonus = job.bonus + first;
  for (Index t = 0; t < job.tokens; ++t) {
    const Index at = (b * job.tokens + t) * job.channels + first;
    const float *k = job.k + at, *v = job.v + at;
    float *y = job.y + at, *top = job.top + at, *share = job.share + at;
#pragma GCC ivdep
    for (Index c = 0; c < count; ++c) {
      const Scales now(p[c], bonus[c] + k[c]), next(p[c] + decay[c], k[c]);
      const float part = 1.f / (now.one * d[c] + now.two);
      y[c] = (now.one * a[c] + now.two * v[c]) * part;
      top[c] = now.top;
      share[c] = part;
      a[c] = next.one * a[c] + next.two * v[c];
      d[c] = next.one * d[c] + next.two;
      p[c] = next.top;
    }
  }
  for (Index i = 0; i < 3; ++i) std::copy_n(sums[i], count, job.end + job.sums(b, i) + first);
}

// backward sums over later tokens: gradients of numerator and denominator, and their derivatives by the decay
struct Sums {
  float a[BLOCK], d[BLOCK], a_decay[BLOCK], d_decay[BLOCK], p[BLOCK];
};

void backward(const Job& job, Index b, Index first, Index count) {
  const float *decay = job.decay + first, *bonus = job.bonus + first;
  Sums s{};
  float ddecay[BLOCK]{}, dbonus[BLOCK]{};
  std::fill_n(s.p, BLOCK, NOTHING);
  if (const float* asked = job.gradient_end) {
    std::copy_n(asked + job.sums(b, 0) + first, count, s.a);
    std::copy_n(asked + job.sums(b, 1) + first, count, s.d);
    for (Index c = 0; c < count; ++c) s.p[c] = -job.end[job.sums(b, 2) + first + c];
  }
  for (Index t = job.tokens; t-- > 0;) {
    const Index at = (b * job.tokens + t) * job.channels + first;
    const float *k = job.k + at, *v = job.v + at, *y = job.y + at, *top = job.top + at, *share = job.share + at;
    const float* gradient = job.gradient + at;
    float *dk = job.dk + at, *dv = job.dv + at;
#pragma GCC ivdep
    for (Index c = 0; c < count; ++c) {
      const float asked = gradient[c] * share[c], self = power(bonus[c] + k[c] - top[c]) * asked;
      const float later = power(k[c] + s.p[c]), here = self * (v[c] - y[c]);
      dv[c] = later * s.a[c] + self;
      dk[c] = later * (v[c] * s.a[c] + s.d[c]) + here;
      dbonus[c] += here;
      ddecay[c] += later * (v[c] * s.a_decay[c] + s.d_decay[c]);
      const Scales next(s.p[c] + decay[c], -top[c]);
      s.a_decay[c] = next.one * (s.a_decay[c] + s.a[c]);
      s.d_decay[c] = next.one * (s.d_decay[c] + s.d[c]);
      s.a[c] = next.one * s.a[c] + next.two * asked;
      s.d[c] = next.one * s.d[c] - next.two * asked * y[c];
      s.p[c] = next.top;
    }
  }
  const float *start = job.start + job.sums(b, 0) + first, *under = start + job.channels, *p = under + job.channels;
  float *da = job.dstart + job.sums(b, 0) + first, *dd = da + job.channels;
  for (Index c = 0; c < count; ++c) {
    const float later = power(p[c] + s.p[c]);
    job.ddecay[b * job.channels + first + c] = ddecay[c] + later * (start[c] * s.a_decay[c] + under[c] * s.d_decay[c]);
    job.dbonus[b * job.channels + first + c] = dbonus[c];
    da[c] = later * s.a[c];
    dd[c] = later * s.d[c];
  }
}

}  // namespace

extern "C" const char* ordinate_wkv(const Job* job) {
  return guarded([&] {
    const Index blocks = parts(job->channels, BLOCK);
    share(job->batch * blocks, [&](std::atomic<Index>& next) {
      for (Index task; (task = next++) < job->batch * blocks;) {
        const Index first = task % blocks * BLOCK, count = min(BLOCK, job->channels - first);
        (job->back ? backward : forward)(*job, task / blocks, first, count);
      }
    });
  });
}
