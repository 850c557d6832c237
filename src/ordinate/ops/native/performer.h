// Shared by the forward and backward pass of attention by random features: the job, features and weights of a chunk.

#pragma once

#include <cmath>

#include "matrix.h"

namespace {

constexpr Index CHUNK = 64;

struct Job {
  bool back, mirrored;
  Index batch, heads, tokens, width, depth, directions;
  double scale;  // s; the directions are multiplied by it already
  View q, k, v, out;
  const float *across, *down;  // directions: (width, directions) and (directions, width)
  const bool* real;            // (batch, tokens), or null
  const float* start;          // (batch, heads, features, depth + 1)
  float* end;
  float *peaks, *shares;  // (batch, heads, chunks + 1), the first given; (batch, heads, tokens): 1 / denominator, or 0
  float* kept;            // (batch, heads, chunks, features, columns): state before each chunk, or null (no backward)
  View gradient, dq, dk, dv;
  const float* gradient_end;  // or null
  float* dstart;

  Index chunks() const { return parts(tokens, CHUNK); }
  Index features() const { return mirrored ? 2 * directions : directions; }
  // columns of the state: values and the denominator, padded to whole vectors
  Index columns() const { return parts(depth + 1, LANES) * LANES; }
};

// e^x for x <= 0; NaN is propagated
inline float power(float x) { return x == x ? exponential(x) : x; }

// one head of one sequence; its longer functions are not inlined, since all in one would take twice as long to compile
struct Chunks {
  const Job& job;
  const Index b, h, at, features, columns;
  Room room;
  const Matrix turned_q, turned_k, fq, fk, rows, sums, asked, values, pairs, slopes, turned, out, out_turned;
  const Matrix values_turned, dfq, dfk, dx;
  float highest[CHUNK], levels[CHUNK], peaks[CHUNK + 1], weights[CHUNK], enter[CHUNK], leave[CHUNK], keep;

  Chunks(const Job& job, Index task)
      : job(job), b(task / job.heads), h(task % job.heads), at(task), features(job.features()), columns(job.columns()),
        room(needed(job)), turned_q(room.take(job.width, CHUNK)), turned_k(room.take(job.width, CHUNK)),
        fq(room.take(features, CHUNK)), fk(room.take(features, CHUNK)), rows(room.take(CHUNK, features)),
        sums(room.take(features, columns)), asked(room.take(features, columns)), values(room.take(CHUNK, columns)),
        pairs(room.take(CHUNK, CHUNK)), slopes(room.take(CHUNK, CHUNK)), turned(room.take(CHUNK, CHUNK)),
        out(room.take(CHUNK, columns)), out_turned(room.take(columns, CHUNK)),
        values_turned(room.take(columns, CHUNK)), dfq(room.take(features, CHUNK)), dfk(room.take(features, CHUNK)),
        dx(room.take(job.width, CHUNK)) {}

  static Index needed(const Job& job) {
    return CHUNK * (3 * job.width + 5 * job.features() + 4 * job.columns() + 3 * CHUNK) +
           2 * job.features() * job.columns() + 32 * LANES;
  }
  Matrix across() const { return {const_cast<float*>(job.across), job.width, job.directions}; }
  Matrix down() const { return {const_cast<float*>(job.down), job.directions, job.width}; }
  Index count(Index chunk) const { return min(CHUNK, job.tokens - chunk * CHUNK); }
  Matrix kept(Index chunk) const {
    return {job.kept + (at * job.chunks() + chunk) * features * columns, features, columns};
  }

  // copy states of `depth + 1` columns to ones padded to whole vectors, and back
  void widen(const float* from, const Matrix& to) const {
    std::fill_n(to.data, features * columns, 0.f);
    if (from)
      for (Index r = 0; r < features; ++r)
        std::copy_n(from + (at * features + r) * (job.depth + 1), job.depth + 1, to.row(r));
  }
  void narrow_to(const Matrix& from, float* to) const {
    for (Index r = 0; r < features; ++r)
      std::copy_n(from.row(r), job.depth + 1, to + (at * features + r) * (job.depth + 1));
  }

  // transpose a chunk: tokens as columns, zero-padded
  void turn(const View& x, Index chunk, const Matrix& to) const {
    const Index tokens = count(chunk);
    if (tokens < CHUNK) std::fill_n(to.data, to.rows * CHUNK, 0.f);
    for (Index i = 0; i < tokens; ++i) {
      const float* row = x.row<float>(b, h, chunk * CHUNK + i);
      for (Index c = 0; c < to.rows; ++c) to.row(c)[i] = row[c];
    }
  }
  void turn_back(const Matrix& x, Index chunk, const View& to) const {
    for (Index i = 0; i < count(chunk); ++i) {
      float* row = to.row<float>(b, h, chunk * CHUNK + i);
      for (Index c = 0; c < x.rows; ++c) row[c] = x.row(c)[i];
    }
  }

  // features of tokens as columns, divided by the largest of each token
  [[gnu::noinline]] void features_below(const Matrix& x, const Matrix& f) {
    multiply(down(), x, {f.data, job.directions, CHUNK});
    std::fill_n(highest, CHUNK, NEVER);
    for (Index r = 0; r < job.directions; ++r)
#pragma omp simd
      for (Index i = 0; i < CHUNK; ++i) {
        const float x = job.mirrored ? std::fabs(f.row(r)[i]) : f.row(r)[i];
        highest[i] = x > highest[i] ? x : highest[i];
      }
    for (Index r = 0; r < job.directions; ++r) {
      float *one = f.row(r), *other = job.mirrored ? f.row(job.directions + r) : nullptr;
      if (other)
#pragma omp simd
        for (Index i = 0; i < CHUNK; ++i) other[i] = power(-one[i] - highest[i]);
#pragma omp simd
      for (Index i = 0; i < CHUNK; ++i) one[i] = power(one[i] - highest[i]);
    }
  }

  // features of tokens as rows, divided by the largest of each token or by e^given
  [[gnu::noinline]] void features_beside(const View& x, Index chunk, const float* given) const {
    const Index tokens = count(chunk), all = job.directions;
    at::native::cpublas::brgemm(tokens, all, job.width, x.token, all, features, false,
                                x.row<float>(b, h, chunk * CHUNK), job.across, rows.data, false);
    for (Index i = 0; i < tokens; ++i) {
      float* one = rows.row(i);
      const float high = given ? given[i] : top(one);
      if (job.mirrored)
#pragma omp simd
        for (Index c = 0; c < all; ++c) one[all + c] = power(-one[c] - high);
#pragma omp simd
      for (Index c = 0; c < all; ++c) one[c] = power(one[c] - high);
    }
  }
  float top(const float* x) const {
    float most[LANES];
    std::fill_n(most, LANES, NEVER);
    for (Index c = 0; c < job.directions; c += LANES) {
      const Index lanes = min(LANES, job.directions - c);
#pragma omp simd
      for (Index l = 0; l < lanes; ++l) {
        const float y = job.mirrored ? std::fabs(x[c + l]) : x[c + l];
        most[l] = y > most[l] ? y : most[l];
      }
    }
    return *std::max_element(most, most + LANES);
  }

  // weights of keys, and the factors by which states shrink between tokens as the running maximum (peak) grows
  [[gnu::noinline]] void weigh(Index chunk) {
    const float half = static_cast<float>(job.scale * job.scale / 2);
    std::fill_n(levels, CHUNK, 0.f);
    for (Index c = 0; c < job.width; ++c)
#pragma omp simd
      for (Index i = 0; i < CHUNK; ++i) levels[i] += turned_k.row(c)[i] * turned_k.row(c)[i];
    peaks[0] = job.peaks[at * (job.chunks() + 1) + chunk];
    for (Index i = 0; i < CHUNK; ++i) {
      const bool there = i < count(chunk) && (!job.real || job.real[b * job.tokens + chunk * CHUNK + i]);
      levels[i] = there ? highest[i] - half * levels[i] : NEVER;
      // written so that a NaN in either level or peak is propagated
      peaks[i + 1] = levels[i] <= peaks[i] || peaks[i] != peaks[i] ? peaks[i] : levels[i];
    }
    keep = power(peaks[0] - peaks[CHUNK]);
#pragma omp simd
    for (Index i = 0; i < CHUNK; ++i) {
      weights[i] = power(levels[i] - peaks[i + 1]);
      enter[i] = power(peaks[0] - peaks[i + 1]);
      leave[i] = power(peaks[i + 1] - peaks[CHUNK]);
    }
    for (Index i = 0; i < CHUNK; ++i) {
      float* to = values.row(i);
      std::fill_n(to, columns, 0.f);
      if (i >= count(chunk)) continue;
      const float* v = job.v.row<float>(b, h, chunk * CHUNK + i);
#pragma omp simd
      for (Index c = 0; c < job.depth; ++c) to[c] = weights[i] * v[c];
      to[job.depth] = weights[i];
    }
  }

  // causal mask and decay on products of queries (rows) and keys
  [[gnu::noinline]] void fade(const Matrix& pairs) const {
    for (Index i = 0; i < CHUNK; ++i) {
      float* row = pairs.row(i);
      std::fill_n(row + i + 1, CHUNK - i - 1, 0.f);
      if (peaks[1] != peaks[i + 1])
#pragma omp simd
        for (Index j = 0; j <= i; ++j) row[j] *= power(peaks[j + 1] - peaks[i + 1]);
    }
  }
  // the same, transposed: keys as rows
  [[gnu::noinline]] void fade_turned(const Matrix& pairs) const {
    for (Index j = 0; j < CHUNK; ++j) {
      float* row = pairs.row(j);
      std::fill_n(row, j, 0.f);
      if (peaks[j + 1] != peaks[CHUNK])
#pragma omp simd
        for (Index i = j; i < CHUNK; ++i) row[i] *= power(peaks[j + 1] - peaks[i + 1]);
    }
  }
};

}  // namespace
