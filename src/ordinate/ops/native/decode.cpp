// Decoding: attention of a few queries over a KV cache, softmax(q k^T scale + bias) v, in one pass over keys and values.
//
// Keys are split into chunks of a fixed size, whose partial sums are combined in order: results do not depend on the
// number of threads.
//
// If the largest key norm is known, chunks of negligible weight are not read: |q| |k| scale + bias bounds every score of
// a chunk (Cauchy-Schwarz), and thereby the weight of all such chunks relative to the newest chunk, which is read.

#include <cmath>
#include <memory>

#include "job.h"

namespace {

constexpr Index CHUNK = 512;      // keys per chunk
constexpr double SHARE = -26.0;   // log2 of the largest total weight of skipped keys relative to the newest chunk
constexpr double ROOM = 1.001;    // margin for the rounding of scores and norms

struct Job {
  bool bfloat16;
  Index batch, heads, key_heads, queries, width, depth;
  Index first, last;  // range of keys that are visible to any query
  double scale;
  View q, k, v, out;
  View bias;     // (batch, heads, queries, keys) in float, or null; -inf masks
  float* sinks;    // (heads), or null
  float* longest;  // (batch, key heads): upper bound on the norm of keys, not finite if a key is not; null: unknown
  bool* finite;  // whether all products and results are finite; keys outside of [first, last) do not count

  Index rows() const { return heads / key_heads * queries; }  // of one head of keys
  Index chunks() const { return parts(last - first, CHUNK); }
};

// partial softmax of one row over one chunk: largest score, sum of exp(score - top), and sum of that times the values
struct Part {
  float top, mass;
  float* sum;
};

// SIZE: trip count known at compile time; 0: at run time
template <Index SIZE, class T>
inline float dot(const float* __restrict a, const T* __restrict b, Index size) {
  float sum = 0.f;
#pragma omp simd reduction(+ : sum)
  for (Index c = 0; c < (SIZE ? SIZE : size); ++c) sum += a[c] * static_cast<float>(b[c]);
  return sum;
}

template <Index SIZE, class T>
inline void add_values(const float* weights, const T* v, Index pitch, float* __restrict sum, Index size) {
  const float one = weights[0], two = weights[1], three = weights[2], four = weights[3];
  const T *__restrict second = v + pitch, *__restrict third = second + pitch, *__restrict fourth = third + pitch;
#pragma omp simd
  for (Index c = 0; c < (SIZE ? SIZE : size); ++c)
    sum[c] += one * static_cast<float>(v[c]) + two * static_cast<float>(second[c]) +
              (three * static_cast<float>(third[c]) + four * static_cast<float>(fourth[c]));
}

// turn scores into weights relative to the largest
inline void soften(float* __restrict scores, const float* __restrict bias, float scale, Index count, Part& part) {
  float top = NEVER, mass = 0.f;
  if (bias) {
#pragma omp simd
    for (Index j = 0; j < count; ++j) scores[j] = scores[j] * scale + bias[j];
  } else {
#pragma omp simd
    for (Index j = 0; j < count; ++j) scores[j] *= scale;
  }
#pragma omp simd reduction(max : top)
  for (Index j = 0; j < count; ++j) top = top < scores[j] ? scores[j] : top;
  const float base = top == NEVER ? 0.f : top;
#pragma omp simd reduction(+ : mass)
  for (Index j = 0; j < count; ++j) {
    scores[j] = exponential(scores[j] - base);
    mass += scores[j];
  }
  part.top = top;
  part.mass = mass;
}

Index head_of(const Job& job, Index g, Index r) { return g * (job.heads / job.key_heads) + r / job.queries; }

// Whether a chunk is negligible for every row relative to the newest chunk, even if all chunks were as heavy.
template <class T>
bool weightless(const Job& job, Index b, Index g, Index begin, const Part* newest) {
  const Index count = min(CHUNK, job.last - begin);
  const double room = std::log(static_cast<double>(count * job.chunks())) - SHARE * std::log(2.0);
  for (Index r = 0; r < job.rows(); ++r) {
    const T* q = job.q.row<T>(b, head_of(job, g, r), r % job.queries);
    const float* bias = job.bias.row<float>(b, head_of(job, g, r), r % job.queries) + begin;
    float square = 0.f, top = NEVER;
#pragma omp simd reduction(+ : square)
    for (Index c = 0; c < job.width; ++c) square += static_cast<float>(q[c]) * static_cast<float>(q[c]);
#pragma omp simd reduction(max : top)
    for (Index j = 0; j < count; ++j) top = top < bias[j] ? bias[j] : top;
    const double most = std::sqrt(square) * job.longest[b * job.key_heads + g] * std::abs(job.scale) * ROOM + top;
    // negated, so that any NaN counts as not negligible
    if (!(most + room < newest[r].top + std::log(newest[r].mass))) return false;
  }
  return true;
}

template <Index SIZE, class T>
double attend_chunk(const Job& job, Index b, Index g, Index begin, Part* parts_of_rows) {
  const Index count = min(CHUNK, job.last - begin), rows = job.rows(), even = count / 4 * 4;
  Buffer<float> scores(rows * CHUNK), q(rows * job.width);
  double total = 0.;
  for (Index r = 0; r < rows; ++r) {
    const T* from = job.q.row<T>(b, head_of(job, g, r), r % job.queries);
    for (Index c = 0; c < job.width; ++c) q[r * job.width + c] = from[c];
  }
  for (Index j = 0; j < count; ++j)
    for (Index r = 0; r < rows; ++r)
      scores[r * CHUNK + j] = dot<SIZE>(q + r * job.width, job.k.row<T>(b, g, begin + j), job.width);
  for (Index r = 0; r < rows; ++r) {
    float* row = scores + r * CHUNK;
    float sum = 0.f;
#pragma omp simd reduction(+ : sum)
    for (Index j = 0; j < count; ++j) sum += row[j];
    total += sum;
    const float* bias = job.bias.data ? job.bias.row<float>(b, head_of(job, g, r), r % job.queries) + begin : nullptr;
    soften(row, bias, job.scale, count, parts_of_rows[r]);
    std::fill_n(parts_of_rows[r].sum, job.depth, 0.f);
  }
  for (Index j = 0; j < even; j += 4)
    for (Index r = 0; r < rows; ++r)
      add_values<SIZE>(scores + r * CHUNK + j, job.v.row<T>(b, g, begin + j), job.v.token, parts_of_rows[r].sum,
                       job.depth);
  for (Index j = even; j < count; ++j)
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < job.depth; ++c)
        parts_of_rows[r].sum[c] += scores[r * CHUNK + j] * static_cast<float>(job.v.row<T>(b, g, begin + j)[c]);
  return total;
}

// partial softmax of a skipped chunk
double leave_out(const Job& job, Part* parts_of_rows) {
  for (Index r = 0; r < job.rows(); ++r) {
    parts_of_rows[r].top = NEVER;
    parts_of_rows[r].mass = 0.f;
    std::fill_n(parts_of_rows[r].sum, job.depth, 0.f);
  }
  return 0.;
}

// Combine the partial softmaxes of one row, which are `step` apart; returns a sum that is finite if the result is.
template <class T>
double gather(const Job& job, const Part* part, Index step, Index b, Index h, Index i, float* __restrict sum) {
  const Index chunks = job.chunks();
  float top = job.sinks ? job.sinks[h] : NEVER, mass = job.sinks ? 1.f : 0.f, highest = top;
  for (Index n = 0; n < chunks; ++n) highest = std::max(highest, part[n * step].top);
  const float base = highest == NEVER ? 0.f : highest;
  mass *= exponential(top - base);
  std::fill_n(sum, job.depth, 0.f);
  for (Index n = 0; n < chunks; ++n) {
    const float shrink = exponential(part[n * step].top - base);
    mass += part[n * step].mass * shrink;
    for (Index c = 0; c < job.depth; ++c) sum[c] += part[n * step].sum[c] * shrink;
  }
  double total = 0.;
  for (Index c = 0; c < job.depth; ++c) {
    total += sum[c];
    narrow(mass == 0.f ? 0.f : sum[c] / mass, job.out.row<T>(b, h, i)[c]);
  }
  return total;
}

template <class T>
void decode(const Job& job) {
  const Index rows = job.rows(), chunks = job.chunks(), heads = job.batch * job.key_heads;
  Buffer<float> sums(heads * chunks * rows * job.depth), sum(job.depth);
  std::unique_ptr<Part[]> found(new Part[heads * chunks * rows]);
  for (Index i = 0; i < heads * chunks * rows; ++i) found[i].sum = sums + i * job.depth;
  std::unique_ptr<double[]> totals(new double[heads * chunks]);
  auto* const work = job.width != job.depth ? attend_chunk<0, T>
                     : job.width == 64      ? attend_chunk<64, T>
                     : job.width == 128     ? attend_chunk<128, T>
                                            : attend_chunk<0, T>;
  // compute the chunks [from, to) of every key head; `far`: skip negligible ones
  const auto attend = [&](Index from, Index to, bool far) {
    parallel_for(heads * (to - from), 1, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index head = i / (to - from), chunk = from + i % (to - from), task = head * chunks + chunk;
        const Index b = head / job.key_heads, g = head % job.key_heads, key = job.first + chunk * CHUNK;
        Part* const made = &found[task * rows];
        if (far && weightless<T>(job, b, g, key, &found[(head * chunks + chunks - 1) * rows]))
          totals[task] = leave_out(job, made);
        else
          totals[task] = work(job, b, g, key, made);
      }
    });
  };
  const bool known = job.longest && job.bias.data;
  // the newest chunk first, since the bound for all others refers to it
  if (known) attend(chunks - 1, chunks, false);
  attend(0, chunks - known, known);
  double total = 0.;
  for (Index task = 0; task < heads * chunks; ++task) total += totals[task];
  for (Index head = 0; head < heads; ++head)
    for (Index r = 0; r < rows; ++r) {
      const Index h = head % job.key_heads * (job.heads / job.key_heads) + r / job.queries;
      total += gather<T>(job, &found[head * chunks * rows + r], rows, head / job.key_heads, h, r % job.queries, sum);
    }
  *job.finite = std::isfinite(total);
}

}  // namespace

extern "C" const char* ordinate_decode(const Job* job) {
  return guarded([&] { job->bfloat16 ? decode<c10::BFloat16>(*job) : decode<float>(*job); });
}
