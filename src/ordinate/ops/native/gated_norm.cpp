// Gated group norm of RWKV-6 and RWKV-7: (norm(y) scale + shift + own) gate, forward and backward, in one pass each.
//
// own = (sum of r bonus k) v is the current token's own term, which is optional.

#include <cmath>

#include "job.h"

namespace {

constexpr Index BLOCK = 128;  // tokens per task

struct Job {
  bool back;
  Index batch, heads, tokens, width;
  double epsilon;
  View y, gate, out, r, k, v;           // r, k, v: null without own term
  const float *scale, *shift, *bonus;   // (heads, width)
  View gradient, dy, dgate, dr, dk, dv;
  float *dscale, *dshift, *dbonus;      // (batch, blocks, heads, width), initialised to 0

  Index blocks() const { return parts(tokens, BLOCK); }
};

struct Moments {
  float mean = 0, share = 0;
  Moments(const float* y, Index width, double epsilon) {
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (Index c = 0; c < width; ++c) sum += y[c];
    mean = sum / width;
#pragma omp simd reduction(+ : squares)
    for (Index c = 0; c < width; ++c) squares += (y[c] - mean) * (y[c] - mean);
    share = 1.f / std::sqrt(squares / width + static_cast<float>(epsilon));
  }
};

// own term of one token in one head
struct Own {
  const float *r, *k, *v, *bonus;
  float read = 0;
  Own(const Job& job, Index b, Index h, Index t)
      : r(job.r.row<float>(b, h, t)), k(job.k.row<float>(b, h, t)), v(job.v.row<float>(b, h, t)),
        bonus(job.bonus + h * job.width) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Index c = 0; c < job.width; ++c) sum += r[c] * bonus[c] * k[c];
    read = sum;
  }
};

void forward(const Job& job, Index b, Index h, Index t) {
  const float* __restrict y = job.y.row<float>(b, h, t);
  const float* __restrict gate = job.gate.row<float>(b, h, t);
  const float *scale = job.scale + h * job.width, *shift = job.shift + h * job.width;
  float* __restrict out = job.out.row<float>(b, h, t);
  const Moments of(y, job.width, job.epsilon);
  if (job.r.data) {
    const Own own(job, b, h, t);
    const float* __restrict v = own.v;
#pragma omp simd
    for (Index c = 0; c < job.width; ++c)
      out[c] = ((y[c] - of.mean) * of.share * scale[c] + shift[c] + own.read * v[c]) * gate[c];
    return;
  }
#pragma omp simd
  for (Index c = 0; c < job.width; ++c) out[c] = ((y[c] - of.mean) * of.share * scale[c] + shift[c]) * gate[c];
}

// gradients of the own term; adds its part to the gradient of the gate
void backward_own(const Job& job, Index b, Index h, Index t, float* __restrict dbonus) {
  const Own own(job, b, h, t);
  const float *r = own.r, *k = own.k, *v = own.v, *bonus = own.bonus;
  const float *gate = job.gate.row<float>(b, h, t), *gradient = job.gradient.row<float>(b, h, t);
  float *__restrict dr = job.dr.row<float>(b, h, t), *__restrict dk = job.dk.row<float>(b, h, t);
  float *__restrict dv = job.dv.row<float>(b, h, t), *__restrict dgate = job.dgate.row<float>(b, h, t);
  float asked = 0;
#pragma omp simd reduction(+ : asked)
  for (Index c = 0; c < job.width; ++c) asked += gradient[c] * gate[c] * v[c];
#pragma omp simd
  for (Index c = 0; c < job.width; ++c) {
    dgate[c] += gradient[c] * own.read * v[c];
    dv[c] = gradient[c] * gate[c] * own.read;
    dr[c] = asked * bonus[c] * k[c];
    dk[c] = asked * bonus[c] * r[c];
    dbonus[c] += asked * r[c] * k[c];
  }
}

void backward(const Job& job, Index b, Index h, Index t, Index sums) {
  const float* __restrict y = job.y.row<float>(b, h, t);
  const float* __restrict gate = job.gate.row<float>(b, h, t);
  const float* __restrict gradient = job.gradient.row<float>(b, h, t);
  const float *scale = job.scale + h * job.width, *shift = job.shift + h * job.width;
  float *__restrict dy = job.dy.row<float>(b, h, t), *__restrict dgate = job.dgate.row<float>(b, h, t);
  float *__restrict dscale = job.dscale + sums, *__restrict dshift = job.dshift + sums;
  const Moments of(y, job.width, job.epsilon);
  float sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
  for (Index c = 0; c < job.width; ++c) {
    const float normed = (y[c] - of.mean) * of.share, asked = gradient[c] * gate[c];
    dgate[c] = gradient[c] * (normed * scale[c] + shift[c]);
    dscale[c] += asked * normed;
    dshift[c] += asked;
    sum += asked * scale[c];
    along += asked * scale[c] * normed;
  }
  sum /= job.width, along /= job.width;
#pragma omp simd
  for (Index c = 0; c < job.width; ++c) {
    const float normed = (y[c] - of.mean) * of.share;
    dy[c] = of.share * (gradient[c] * gate[c] * scale[c] - sum - normed * along);
  }
  if (job.r.data) backward_own(job, b, h, t, job.dbonus + sums);
}

}  // namespace

extern "C" const char* ordinate_gated_norm(const Job* job) {
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
