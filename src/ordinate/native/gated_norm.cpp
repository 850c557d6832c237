// The norm of each head, and a gate: (norm(y) scale + shift + added) gate, forward and backward, in one pass each.

#include <cmath>

#include "job.h"

namespace {

constexpr Index BLOCK = 128;  // tokens of a task

struct Job {
  bool back;
  Index batch, heads, tokens, width;
  double epsilon;
  View y, added, gate, out;         // added: or nothing
  const float *scale, *shift;       // (heads, width)
  View gradient, dy, dadded, dgate;
  float *dscale, *dshift;           // (batch, blocks, heads, width), zeros at first

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

void forward(const Job& job, Index b, Index h, Index t) {
  const float* __restrict y = job.y.row<float>(b, h, t);
  const float* __restrict gate = job.gate.row<float>(b, h, t);
  const float *scale = job.scale + h * job.width, *shift = job.shift + h * job.width;
  float* __restrict out = job.out.row<float>(b, h, t);
  const Moments of(y, job.width, job.epsilon);
  if (job.added.data) {
    const float* __restrict added = job.added.row<float>(b, h, t);
#pragma omp simd
    for (Index c = 0; c < job.width; ++c)
      out[c] = ((y[c] - of.mean) * of.share * scale[c] + shift[c] + added[c]) * gate[c];
    return;
  }
#pragma omp simd
  for (Index c = 0; c < job.width; ++c) out[c] = ((y[c] - of.mean) * of.share * scale[c] + shift[c]) * gate[c];
}

void backward(const Job& job, Index b, Index h, Index t, float* __restrict dscale, float* __restrict dshift) {
  const float* __restrict y = job.y.row<float>(b, h, t);
  const float* __restrict gate = job.gate.row<float>(b, h, t);
  const float* __restrict gradient = job.gradient.row<float>(b, h, t);
  const float *scale = job.scale + h * job.width, *shift = job.shift + h * job.width;
  float *__restrict dy = job.dy.row<float>(b, h, t), *__restrict dgate = job.dgate.row<float>(b, h, t);
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
  if (!job.added.data) return;
  const float* __restrict added = job.added.row<float>(b, h, t);
  float* __restrict dadded = job.dadded.row<float>(b, h, t);
#pragma omp simd
  for (Index c = 0; c < job.width; ++c) {
    dadded[c] = gradient[c] * gate[c];
    dgate[c] += gradient[c] * added[c];
  }
}

}  // namespace

extern "C" const char* ordinate_gated_norm(const Job* job) {
  return guarded([&] {
    const Index tasks = job->batch * job->blocks(), channels = job->heads * job->width;
    share(tasks, [&](std::atomic<Index>& next) {
      for (Index task; (task = next++) < tasks;) {
        const Index begin = task % job->blocks() * BLOCK, end = min(begin + BLOCK, job->tokens);
        for (Index t = begin; t < end; ++t)
          for (Index h = 0; h < job->heads; ++h) {
            const Index at = task * channels + h * job->width;
            job->back ? backward(*job, task / job->blocks(), h, t, job->dscale + at, job->dshift + at)
                      : forward(*job, task / job->blocks(), h, t);
          }
      }
    });
  });
}
