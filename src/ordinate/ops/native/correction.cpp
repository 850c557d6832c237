// State update of each token in RWKV-7 (see ops/correction.py), forward and backward, in one pass each:
//
//   w = -e^-0.5 sigmoid(w_0 + s),  a = sigmoid(a_0 + z),  u = k c_k,  c = u / |u|,  k~ = k (1 + (a - 1) c_a)
//
// Inputs are keys k and the projections s (decay) and z (rate); outputs are w, k~, -c and c a.

#include <cmath>

#include "job.h"

namespace {

constexpr Index BLOCK = 128, WIDEST = 256;  // tokens per task, largest number of channels of a head
constexpr float STRONGEST = 0.6065306597126334f, SMALLEST = 1e-12f;  // e^-0.5; lower bound of norms, as in PyTorch

struct Job {
  bool back;
  Index batch, heads, tokens, width;
  View k, slow, rate;
  const float *decay, *usual, *erased, *replaced;  // (heads, width): w_0, a_0, c_k, c_a
  View w, key, seen, moved;                        // outputs; their gradients in the backward pass
  View dk, dslow, drate;
  float *ddecay, *dusual, *derased, *dreplaced;    // (batch, blocks, heads, width), initialised to 0

  Index blocks() const { return parts(tokens, BLOCK); }
};

inline float power(float x) { return x == x ? exponential(x) : x; }

// exponentials of non-positive numbers only, on both sides of 0
inline float sigmoid(float x) {
  const float less = power(x < 0 ? x : -x), share = 1.f / (1.f + less);
  return x < 0 ? less * share : share;
}

inline float length(const float* __restrict k, const float* __restrict erased, Index width) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (Index c = 0; c < width; ++c) squares += k[c] * erased[c] * (k[c] * erased[c]);
  return std::sqrt(squares);
}

void forward(const Job& job, Index b, Index h, Index t) {
  const Index at = h * job.width;
  const float *decay = job.decay + at, *usual = job.usual + at, *erased = job.erased + at, *replaced = job.replaced + at;
  const float *__restrict k = job.k.row<float>(b, h, t), *__restrict slow = job.slow.row<float>(b, h, t);
  const float* __restrict rate = job.rate.row<float>(b, h, t);
  float *__restrict w = job.w.row<float>(b, h, t), *__restrict key = job.key.row<float>(b, h, t);
  float *__restrict seen = job.seen.row<float>(b, h, t), *__restrict moved = job.moved.row<float>(b, h, t);
  const float norm = length(k, erased, job.width), share = 1.f / (norm < SMALLEST ? SMALLEST : norm);
#pragma GCC ivdep
  for (Index c = 0; c < job.width; ++c) {
    const float a = sigmoid(usual[c] + rate[c]), unit = k[c] * erased[c] * share;
    w[c] = -STRONGEST * sigmoid(decay[c] + slow[c]);
    key[c] = k[c] * (1.f + (a - 1.f) * replaced[c]);
    seen[c] = -unit;
    moved[c] = unit * a;
  }
}

void backward(const Job& job, Index b, Index h, Index t, Index sums) {
  const Index at = h * job.width;
  const float *decay = job.decay + at, *usual = job.usual + at, *erased = job.erased + at, *replaced = job.replaced + at;
  const float *__restrict k = job.k.row<float>(b, h, t), *__restrict slow = job.slow.row<float>(b, h, t);
  const float* __restrict rate = job.rate.row<float>(b, h, t);
  const float *__restrict w = job.w.row<float>(b, h, t), *__restrict key = job.key.row<float>(b, h, t);
  const float *__restrict seen = job.seen.row<float>(b, h, t), *__restrict moved = job.moved.row<float>(b, h, t);
  float *__restrict dk = job.dk.row<float>(b, h, t), *__restrict dslow = job.dslow.row<float>(b, h, t);
  float* __restrict drate = job.drate.row<float>(b, h, t);
  float *__restrict ddecay = job.ddecay + sums, *__restrict dusual = job.dusual + sums;
  float *__restrict derased = job.derased + sums, *__restrict dreplaced = job.dreplaced + sums;
  float asked[WIDEST], along = 0;  // gradient of the unit vector, and its component along that vector
  const float norm = length(k, erased, job.width), share = 1.f / (norm < SMALLEST ? SMALLEST : norm);
#pragma omp simd reduction(+ : along)
  for (Index c = 0; c < job.width; ++c) {
    const float a = sigmoid(usual[c] + rate[c]), s = sigmoid(decay[c] + slow[c]), unit = k[c] * erased[c] * share;
    asked[c] = moved[c] * a - seen[c];
    along += asked[c] * unit;
    const float to_slow = w[c] * -STRONGEST * s * (1.f - s);
    const float to_rate = (moved[c] * unit + key[c] * k[c] * replaced[c]) * a * (1.f - a);
    dslow[c] = to_slow;
    drate[c] = to_rate;
    ddecay[c] += to_slow;
    dusual[c] += to_rate;
    dreplaced[c] += key[c] * k[c] * (a - 1.f);
    dk[c] = key[c] * (1.f + (a - 1.f) * replaced[c]);
  }
  along = norm < SMALLEST ? 0.f : along;
#pragma GCC ivdep
  for (Index c = 0; c < job.width; ++c) {
    const float inner = (asked[c] - k[c] * erased[c] * share * along) * share;
    derased[c] += inner * k[c];
    dk[c] += inner * erased[c];
  }
}

}  // namespace

extern "C" const char* ordinate_correction(const Job* job) {
  return guarded([&] {
    const Index tasks = job->batch * job->blocks(), channels = job->heads * job->width;
    share(tasks, [&](std::atomic<Index>& next) {
      for (Index task; (task = next++) < tasks;) {
        const Index begin = task % job->blocks() * BLOCK, end = min(begin + BLOCK, job->tokens);
        for (Index t = begin; t < end; ++t)
          for (Index h = 0; h < job->heads; ++h)
            job->back ? backward(*job, task / job->blocks(), h, t, task * channels + h * job->width)
                      : forward(*job, task / job->blocks(), h, t);
      }
    });
  });
}
