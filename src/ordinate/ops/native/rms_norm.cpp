// Root mean square normalisation y = x r w, r = 1 / sqrt(mean of x^2 + epsilon), forward and backward.

#include <cmath>

#include "job.h"

namespace {

constexpr Index BLOCK = 128;  // rows per task

struct Job {
  Index rows, width;
  double epsilon;
  const float *x, *weight;
  const float* gradient;  // null in the forward pass
  float* out;             // y, or the gradient of x
  float* dweight;         // (blocks, width), initialised to 0
};

float share_of(const float* x, Index width, double epsilon) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (Index c = 0; c < width; ++c) squares += x[c] * x[c];
  return 1.f / std::sqrt(squares / width + static_cast<float>(epsilon));
}

void forward(const Job& job, Index row) {
  const float *__restrict x = job.x + row * job.width, *__restrict weight = job.weight;
  float* __restrict out = job.out + row * job.width;
  const float share = share_of(x, job.width, job.epsilon);
#pragma omp simd
  for (Index c = 0; c < job.width; ++c) out[c] = x[c] * share * weight[c];
}

// with n = x r and g = dy w: dx = r (g - n mean(g n)), dw = sum over rows of dy n
void backward(const Job& job, Index row, float* __restrict dweight) {
  const Index width = job.width;
  const float *__restrict x = job.x + row * width, *__restrict weight = job.weight;
  const float* __restrict gradient = job.gradient + row * width;
  float* __restrict out = job.out + row * width;
  const float share = share_of(x, width, job.epsilon);
  float along = 0;
#pragma omp simd reduction(+ : along)
  for (Index c = 0; c < width; ++c) {
    const float normed = x[c] * share;
    dweight[c] += gradient[c] * normed;
    along += gradient[c] * weight[c] * normed;
  }
  along *= share / width;
#pragma omp simd
  for (Index c = 0; c < width; ++c) out[c] = share * (gradient[c] * weight[c] - x[c] * along);
}

}  // namespace

extern "C" const char* ordinate_rms_norm(const Job* job) {
  return guarded([&] {
    parallel_for(parts(job->rows, BLOCK), 8, [&](Index first, Index last) {
      for (Index block = first; block < last; ++block)
        for (Index row = block * BLOCK; row < min((block + 1) * BLOCK, job->rows); ++row)
          job->gradient ? backward(*job, row, job->dweight + block * job->width) : forward(*job, row);
    });
  });
}
