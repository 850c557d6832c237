// Decoding: attention of a few queries over a KV cache, softmax(q k^T scale + bias) v, in one pass over keys and values.
//
// Keys are split into chunks of a fixed size, whose partial sums are combined in order: results do not depend on the
// number of threads.
//
// If the largest key norm is known, chunks of negligible weight are not read: |q| |k| scale + bias bounds every score of
// a chunk (Cauchy-Schwarz), and thereby the weight of all such chunks relative to the newest chunk, which is read.

#include <cmath>
#include <memory>

#include "rows_of_matrix.h"

namespace {

constexpr Index CHUNK = 512;      // keys per chunk
constexpr Index TOGETHER = 4;     // keys whose scores are computed in parallel
constexpr Index KEYS = 64;        // keys whose values are added to one row after the other
constexpr Index COLUMNS = 64;     // columns of values that are summed in registers
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
  template <class T>
  Index padded() const {  // channels of a sum of values
    return parts(depth, Piece<T>::SIZE) * Piece<T>::SIZE;
  }
};

// partial softmax of one row over one chunk: largest score, sum of exp(score - top), and sum of that times the values,
// whose channels are in the order of `Piece`
struct Part {
  float top, mass;
  float* sum;
};

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

// scores of `ROWS` keys for all rows, two rows at a time
template <Index ROWS, class T>
void score(const Job& job, const Piece<T>* q, const T* k, float* scores) {
  const Index pieces = parts(job.width, Piece<T>::SIZE);
  float found[2 * ROWS];
  for (Index r = 0; r < job.rows(); r += 2) {
    const Index count = min<Index>(2, job.rows() - r);
    products<ROWS>(count, q + r * pieces, k, job.k.token, job.width, found);
    for (Index i = 0; i < count; ++i) std::copy_n(found + i * ROWS, ROWS, scores + (r + i) * CHUNK);
  }
}

// add weights times values, `count` keys, to the sum of one row
template <class T>
void add_values(const Job& job, const float* weights, const T* v, Index count, float* sum) {
  constexpr Index SIZE = Piece<T>::SIZE, MOST = COLUMNS / SIZE;
  const Index whole = job.depth / SIZE * SIZE;
  Index c = 0;
  for (; c + COLUMNS <= whole; c += COLUMNS) add_rows<MOST>(weights, v + c, job.v.token, count, sum + c);
  for (; c < whole; c += SIZE) add_rows<1>(weights, v + c, job.v.token, count, sum + c);
  if (c < job.depth) add_rows<1>(weights, v + c, job.v.token, count, sum + c, job.depth - c);
}

template <class T>
double attend_chunk(const Job& job, Index b, Index g, Index begin, Part* parts_of_rows) {
  const Index count = min(CHUNK, job.last - begin), rows = job.rows(), even = count / TOGETHER * TOGETHER;
  const Index pieces = parts(job.width, Piece<T>::SIZE);
  Buffer<float> scores(rows * CHUNK);
  Buffer<Piece<T>> q(rows * pieces);
  double total = 0.;
  for (Index r = 0; r < rows; ++r)
    unpack(job.q.row<T>(b, head_of(job, g, r), r % job.queries), job.width, q + r * pieces);
  for (Index j = 0; j < even; j += TOGETHER) score<TOGETHER, T>(job, q, job.k.row<T>(b, g, begin + j), scores + j);
  for (Index j = even; j < count; ++j) score<1, T>(job, q, job.k.row<T>(b, g, begin + j), scores + j);
  for (Index r = 0; r < rows; ++r) {
    float* row = scores + r * CHUNK;
    float sum = 0.f;
#pragma omp simd reduction(+ : sum)
    for (Index j = 0; j < count; ++j) sum += row[j];
    total += sum;
    const float* bias = job.bias.data ? job.bias.row<float>(b, head_of(job, g, r), r % job.queries) + begin : nullptr;
    soften(row, bias, job.scale, count, parts_of_rows[r]);
    std::fill_n(parts_of_rows[r].sum, job.padded<T>(), 0.f);
  }
  // the values of few keys at a time: they stay in the cache for all rows, and partial sums are short
  for (Index j = 0; j < count; j += KEYS)
    for (Index r = 0; r < rows; ++r)
      add_values<T>(job, scores + r * CHUNK + j, job.v.row<T>(b, g, begin + j), min(KEYS, count - j),
                 parts_of_rows[r].sum);
  return total;
}

// partial softmax of a skipped chunk
template <class T>
double leave_out(const Job& job, Part* parts_of_rows) {
  for (Index r = 0; r < job.rows(); ++r) {
    parts_of_rows[r].top = NEVER;
    parts_of_rows[r].mass = 0.f;
    std::fill_n(parts_of_rows[r].sum, job.padded<T>(), 0.f);
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
  std::fill_n(sum, job.padded<T>(), 0.f);
  for (Index n = 0; n < chunks; ++n) {
    const float shrink = exponential(part[n * step].top - base);
    mass += part[n * step].mass * shrink;
    for (Index c = 0; c < job.padded<T>(); ++c) sum[c] += part[n * step].sum[c] * shrink;
  }
  double total = 0.;
  for (Index c = 0; c < job.depth; ++c) {
    const float own = sum[Piece<T>::unpacked(c)];
    total += own;
    narrow(mass == 0.f ? 0.f : own / mass, job.out.row<T>(b, h, i)[c]);
  }
  return total;
}

template <class T>
void decode(const Job& job) {
  const Index rows = job.rows(), chunks = job.chunks(), heads = job.batch * job.key_heads;
  const Index padded = job.padded<T>();
  Buffer<float> sums(heads * chunks * rows * padded), sum(padded);
  std::unique_ptr<Part[]> found(new Part[heads * chunks * rows]);
  for (Index i = 0; i < heads * chunks * rows; ++i) found[i].sum = sums + i * padded;
  std::unique_ptr<double[]> totals(new double[heads * chunks]);
  // compute the chunks [from, to) of every key head; `far`: skip negligible ones
  const auto attend = [&](Index from, Index to, bool far) {
    parallel_for(heads * (to - from), 1, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index head = i / (to - from), chunk = from + i % (to - from), task = head * chunks + chunk;
        const Index b = head / job.key_heads, g = head % job.key_heads, key = job.first + chunk * CHUNK;
        Part* const made = &found[task * rows];
        if (far && weightless<T>(job, b, g, key, &found[(head * chunks + chunks - 1) * rows]))
          totals[task] = leave_out<T>(job, made);
        else
          totals[task] = attend_chunk<T>(job, b, g, key, made);
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
