// Causal attention by exponential random features (Performer), forward and backward: chunk by chunk, so that the
// features stay in the cache.
//
//   phi(x) = e^(w x - highest) for each direction w, and its opposite if mirrored;   level = highest - |s x|^2 / 2
//   out_i = phi(q_i) S_i;   S_i = e^(peak_(i-1) - peak_i) S_(i-1) + e^(level_i - peak_i) phi(k_i) (v_i, 1)^T
//
// peak: the highest level so far. The last column of `out` is the denominator of the others.

#include "performer.h"

namespace {

struct Head : Chunks {
  using Chunks::Chunks;

  void write(Index chunk) const {
    for (Index i = 0; i < count(chunk); ++i) {
      const float *from = out.row(i), total = from[job.depth];
      const float share = total < std::numeric_limits<float>::min() ? 0.f : 1.f / total;
      float* to = job.out.row<float>(b, h, chunk * CHUNK + i);
#pragma omp simd
      for (Index c = 0; c < job.depth; ++c) to[c] = from[c] * share;
      if (job.shares) job.shares[at * job.tokens + chunk * CHUNK + i] = share;
    }
  }

  // gradients of numerators and denominators from those of their ratios
  [[gnu::noinline]] void ask(Index chunk) const {
    std::fill_n(out.data, CHUNK * columns, 0.f);
    for (Index i = 0; i < count(chunk); ++i) {
      const Index n = chunk * CHUNK + i;
      const float *g = job.gradient.row<float>(b, h, n), *y = job.out.row<float>(b, h, n);
      const float share = job.shares[at * job.tokens + n];
      float *to = out.row(i), total = 0;
#pragma omp simd reduction(+ : total)
      for (Index c = 0; c < job.depth; ++c) to[c] = g[c] * share, total -= to[c] * y[c];
      to[job.depth] = total;
    }
    transpose(out, out_turned);
    transpose(values, values_turned);
  }

  // gradients of the projections from those of the features, in place
  [[gnu::noinline]] void project_back(const Matrix& gradient, const Matrix& f) const {
    const Index half = job.directions * CHUNK;
#pragma omp simd
    for (Index c = 0; c < half; ++c) gradient.data[c] *= f.data[c];
    if (job.mirrored)
#pragma omp simd
      for (Index c = 0; c < half; ++c) gradient.data[c] -= gradient.data[half + c] * f.data[half + c];
    multiply(across(), {gradient.data, job.directions, CHUNK}, dx);
  }

  void forward() {
    widen(job.start, sums);
    for (Index chunk = 0; chunk < job.chunks(); ++chunk) {
      if (job.kept) std::copy_n(sums.data, features * columns, kept(chunk).data);
      turn(job.k, chunk, turned_k);
      features_below(turned_k, fk);
      weigh(chunk);
      features_beside(job.q, chunk, nullptr);
      multiply(rows, sums, out);
      out.scale_rows(enter);
      multiply(rows, fk, pairs);
      fade(pairs);
      multiply(pairs, values, out, true);
      write(chunk);
      sums.scale(keep);
      values.scale_rows(leave);
      multiply(fk, values, sums, true);
      job.peaks[at * (job.chunks() + 1) + chunk + 1] = peaks[CHUNK];
    }
    narrow_to(sums, job.end);
  }

  void backward() {
    widen(job.gradient_end, asked);
    for (Index chunk = job.chunks(); chunk-- > 0;) {
      turn(job.q, chunk, turned_q);
      features_below(turned_q, fq);
      turn(job.k, chunk, turned_k);
      features_below(turned_k, fk);
      features_beside(job.k, chunk, highest);
      weigh(chunk);
      ask(chunk);
      // keys are the rows of this product, and of the first operand of the next one
      multiply(values, out_turned, slopes);
      fade_turned(slopes);
      transpose(slopes, turned);
      multiply(rows, fq, pairs);
      fade_turned(pairs);
      keys_back(chunk);
      queries_back(chunk);
    }
    narrow_to(asked, job.dstart);
  }

  // gradients of keys and values, and of the state before them
  void keys_back(Index chunk) {
    values_turned.scale_columns(leave);
    multiply(fq, turned, dfk);
    multiply(asked, values_turned, dfk, true);
    // the gradients of values reuse the buffer of the transposed values, which are not needed any more
    const Matrix dvalues{values_turned.data, CHUNK, columns};
    multiply(rows, asked, dvalues);
    dvalues.scale_rows(leave);
    multiply(pairs, out, dvalues, true);
    project_back(dfk, fk);
    float slope[CHUNK]{};
    for (Index j = 0; j < count(chunk); ++j) {
      const float *from = dvalues.row(j), *value = values.row(j);
      float *to = job.dv.row<float>(b, h, chunk * CHUNK + j), level = 0;
#pragma omp simd reduction(+ : level)
      for (Index c = 0; c < columns; ++c) level += from[c] * value[c];
#pragma omp simd
      for (Index c = 0; c < job.depth; ++c) to[c] = weights[j] * from[c];
      slope[j] = level * static_cast<float>(job.scale * job.scale);
    }
    for (Index c = 0; c < job.width; ++c)
#pragma omp simd
      for (Index j = 0; j < CHUNK; ++j) dx.row(c)[j] -= slope[j] * turned_k.row(c)[j];
    turn_back(dx, chunk, job.dk);
  }

  void queries_back(Index chunk) {
    out.scale_rows(enter);
    out_turned.scale_columns(enter);
    multiply(fk, slopes, dfq);
    multiply(kept(chunk), out_turned, dfq, true);
    project_back(dfq, fq);
    turn_back(dx, chunk, job.dq);
    asked.scale(keep);
    multiply(fq, out, asked, true);
  }
};

}  // namespace

extern "C" const char* ordinate_performer(const Job* job) {
  return guarded([&] {
    const Index heads = job->batch * job->heads;
    share(heads, [&](std::atomic<Index>& next) {
      for (Index task; (task = next++) < heads;) {
        Head head(*job, task);
        job->back ? head.backward() : head.forward();
      }
      at::native::cpublas::brgemm_release(false);
    });
  });
}
