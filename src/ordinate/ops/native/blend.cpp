// Token shift of RWKV: each token interpolated with the previous one by several sets of weights, forward and backward:
//
//   out_z = x_t + (x_{t-1} - x_t) (share_z + extra_z)

#include "job.h"

namespace {

constexpr Index BLOCK = 128;  // tokens per task
constexpr Index MOST = 6;     // sets of weights

struct Job {
  bool back;
  Index batch, tokens, width, count;
  const float *x, *first;      // (batch, tokens, width), as are extra and out; (batch, width): the token before x
  const float* shares;         // (count, width)
  const float* extra[MOST];    // or null
  float* out[MOST];
  const float* gradient[MOST];
  float *dx, *dfirst, *dshares;  // dshares: (batch, blocks, count, width), initialised to 0
  float* dextra[MOST];

  Index blocks() const { return parts(tokens, BLOCK); }
  const float* before(Index b, Index t) const { return t ? x + (b * tokens + t - 1) * width : first + b * width; }
};

void forward(const Job& job, Index b, Index begin, Index end) {
  for (Index t = begin; t < end; ++t) {
    const Index at = (b * job.tokens + t) * job.width;
    const float* __restrict x = job.x + at;
    const float* __restrict before = job.before(b, t);
    for (Index z = 0; z < job.count; ++z) {
      const float* __restrict share = job.shares + z * job.width;
      float* __restrict out = job.out[z] + at;
      if (const float* __restrict extra = job.extra[z] ? job.extra[z] + at : nullptr) {
#pragma omp simd
        for (Index c = 0; c < job.width; ++c) out[c] = x[c] + (before[c] - x[c]) * (share[c] + extra[c]);
      } else {
#pragma omp simd
        for (Index c = 0; c < job.width; ++c) out[c] = x[c] + (before[c] - x[c]) * share[c];
      }
    }
  }
}

// gradient of the previous token from the outputs of token t
void give(const Job& job, Index b, Index t, float* __restrict to) {
  const Index at = (b * job.tokens + t) * job.width;
  std::fill_n(to, job.width, 0.f);
  for (Index z = 0; z < job.count; ++z) {
    const float* __restrict share = job.shares + z * job.width;
    const float* __restrict gradient = job.gradient[z] + at;
    if (const float* __restrict extra = job.extra[z] ? job.extra[z] + at : nullptr) {
#pragma omp simd
      for (Index c = 0; c < job.width; ++c) to[c] += gradient[c] * (share[c] + extra[c]);
    } else {
#pragma omp simd
      for (Index c = 0; c < job.width; ++c) to[c] += gradient[c] * share[c];
    }
  }
}

void backward(const Job& job, Index b, Index begin, Index end, float* dshares) {
  Buffer<float> room(2 * job.width);
  float *given = room, *gives = room + job.width;
  if (end < job.tokens)
    give(job, b, end, given);
  else
    std::fill_n(given, job.width, 0.f);
  for (Index t = end; t-- > begin;) {
    const Index at = (b * job.tokens + t) * job.width;
    const float* __restrict x = job.x + at;
    const float* __restrict before = job.before(b, t);
    float* __restrict dx = job.dx + at;
    give(job, b, t, gives);
#pragma omp simd
    for (Index c = 0; c < job.width; ++c) dx[c] = given[c] - gives[c];
    for (Index z = 0; z < job.count; ++z) {
      const float* __restrict gradient = job.gradient[z] + at;
      float* __restrict dshare = dshares + z * job.width;
      if (float* __restrict dextra = job.dextra[z] ? job.dextra[z] + at : nullptr) {
#pragma omp simd
        for (Index c = 0; c < job.width; ++c) {
          const float slope = gradient[c] * (before[c] - x[c]);
          dx[c] += gradient[c];
          dshare[c] += slope;
          dextra[c] = slope;
        }
      } else {
#pragma omp simd
        for (Index c = 0; c < job.width; ++c) {
          dx[c] += gradient[c];
          dshare[c] += gradient[c] * (before[c] - x[c]);
        }
      }
    }
    std::swap(given, gives);
  }
  if (begin == 0) std::copy_n(given, job.width, job.dfirst + b * job.width);
}

}  // namespace

extern "C" const char* ordinate_blend(const Job* job) {
  return guarded([&] {
    const Index tasks = job->batch * job->blocks();
    share(tasks, [&](std::atomic<Index>& next) {
      for (Index task; (task = next++) < tasks;) {
        const Index b = task / job->blocks(), begin = task % job->blocks() * BLOCK;
        const Index end = min(begin + BLOCK, job->tokens);
        if (job->back)
          backward(*job, b, begin, end, job->dshares + task * job->count * job->width);
        else
          forward(*job, b, begin, end);
      }
    });
  });
}
