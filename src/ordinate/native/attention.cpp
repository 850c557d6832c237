// softmax(q k^T scale + table) v over visible pairs, in tiles, forward and backward: O(n) memory.
//
// table[h][j - i + queries - 1] is added to the score of query i and key j; causality and windows are -inf in it.
// Products are oneDNN's, by way of libtorch; for 16-bit types their right side holds pairs of rows side by side. Every
// tensor is read and written where it lies, by strides.

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <c10/util/BFloat16.h>
#include <c10/util/bit_cast.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace {

using at::native::cpublas::brgemm;
using std::min;
using Index = int64_t;

constexpr Index ROWS = 128;     // of a tile: queries on the way forward, keys on the way back
constexpr Index COLUMNS = 512;  // of a tile: keys on the way forward, queries on the way back
constexpr Index PANEL = 64;     // columns of one product
constexpr float NEVER = -std::numeric_limits<float>::infinity();

template <class T>
constexpr bool PAIRED = sizeof(T) == 2;

Index parts(Index whole, Index size) { return (whole + size - 1) / size; }
Index padded(Index count) { return parts(count, PANEL) * PANEL; }

struct View {
  void* data;
  Index batch, head, token;  // strides; channels lie side by side

  template <class T>
  T* row(Index b, Index h, Index n = 0) const {
    return static_cast<T*>(data) + b * batch + h * head + n * token;
  }
};

struct Job {
  Index batch, heads, key_heads, queries, keys, width, depth;  // depth: channels of a value
  double scale;
  const float* table;  // (heads, queries + keys - 1); on the way back in reverse
  const Index *first, *last;  // (batch, heads, blocks) and (blocks): the keys of each block of ROWS queries
  const Index *q_document, *k_document;  // (batch, tokens), or null
  View q, k, v, out;
  // (batch, heads, queries): a weight is exp(score - top) * share; 0 and 0 for a query that sees nothing
  float *top, *share;
  void* lost;  // (batch, heads, queries, depth): what rounding takes from the output; or null
  View gradient, dq, dk, dv;
  float* dtable;  // (batch, heads, queries + keys - 1) in reverse, zeros at first; or null

  template <class T>
  T* rest(Index b, Index h, Index i) const {
    return lost ? static_cast<T*>(lost) + ((b * heads + h) * queries + i) * depth : nullptr;
  }
  Index blocks() const { return parts(queries, ROWS); }
  Index pitch() const { return queries + keys - 1; }
};

template <class T>
struct Buffer {
  T* data;
  explicit Buffer(Index count) : data(static_cast<T*>(std::aligned_alloc(64, parts(count * sizeof(T) + 1, 64) * 64))) {
    if (!data) throw std::bad_alloc();
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { std::free(data); }
  operator T*() const { return data; }
};

// work(next) is run by every thread, and takes tasks until there are none: which thread takes which changes no result
template <class Work>
void share(Index tasks, const Work& work) {
  std::atomic<Index> next{0};
  at::parallel_for(0, min<Index>(tasks, at::get_num_threads()), 1, [&](Index, Index) {
    work(next);
  });
}

// e^x for x <= 0, to a rounding; exactly 0 below e^-87, -inf included
inline float exponential(float x) {
  constexpr float round = 12582912.f;  // 1.5 * 2^23: a sum with it has no fraction left
  const float moved = x * 1.44269504088896341f + round, whole = moved - round;
  const float rest = x - whole * 0.693145751953125f - whole * 1.428606765330187e-06f;
  float p = 1.9875691500e-4f;
  p = p * rest + 1.3981999507e-3f;
  p = p * rest + 8.3334519073e-3f;
  p = p * rest + 4.1665795894e-2f;
  p = p * rest + 1.6666665459e-1f;
  p = p * rest + 5.0000001201e-1f;
  p = p * (rest * rest) + rest + 1.f;
  const float power = c10::bit_cast<float>(c10::bit_cast<int32_t>(p) + (c10::bit_cast<int32_t>(moved) << 23));
  return x > -87.f ? power : 0.f;
}

inline void narrow(float x, float& to) { to = x; }
// to the nearest, ties to even; there are no NaN here
inline void narrow(float x, c10::BFloat16& to) {
  const uint32_t bits = c10::bit_cast<uint32_t>(x);
  to.x = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <class T>
void narrow(const float* __restrict from, T* __restrict to, Index count, float scale = 1.f) {
#pragma omp simd
  for (Index c = 0; c < count; ++c) narrow(from[c] * scale, to[c]);
}

// PANEL rows as the columns of a right side; rows that are missing become 0
template <class T>
void pack_columns(const T* from, Index pitch, Index count, Index width, T* to) {
  const Index units = width * sizeof(T) / 4;  // a number, or a pair of 16-bit ones
  auto* unit = reinterpret_cast<char*>(to);
  if (count < PANEL) std::memset(unit, 0, PANEL * units * 4);
  for (Index j = 0; j < min(count, PANEL); ++j) {
    const auto* row = reinterpret_cast<const char*>(from + j * pitch);
    for (Index c = 0; c < units; ++c) std::memcpy(unit + (c * PANEL + j) * 4, row + c * 4, 4);
  }
}

// rows as the rows of a right side, up to `total`; rows that are missing become 0
template <class T>
void pack_rows(const T* from, Index pitch, Index count, Index total, Index width, T* to) {
  if (count < total) std::memset(static_cast<void*>(to + count / 2 * 2 * width), 0, (total - count / 2 * 2) * width * sizeof(T));
  if constexpr (!PAIRED<T>) {
    for (Index r = 0; r < count; ++r) std::memcpy(to + r * width, from + r * pitch, width * sizeof(T));
  } else {
    for (Index r = 0; r < count; r += 2) {
      const T *__restrict one = from + r * pitch, *__restrict two = one + pitch;
      T* __restrict out = to + r * width;
      if (r + 1 == count) {
        for (Index c = 0; c < width; ++c) out[2 * c] = one[c];
        continue;
      }
#pragma omp simd
      for (Index c = 0; c < width; ++c) out[2 * c] = one[c], out[2 * c + 1] = two[c];
    }
  }
}

// the bias of a row of a tile; if there are documents, a copy in `room` that hides those other than its own
inline const float* hide(const float* bias, const Index* documents, Index own, Index count, float* __restrict room) {
  if (!documents) return bias;
#pragma omp simd
  for (Index c = 0; c < count; ++c) room[c] = documents[c] == own ? bias[c] : NEVER;
  return room;
}

// whether two stretches of documents may have one in common
bool meet(const Index* one, Index count, const Index* two, Index other) {
  if (!one) return true;
  const auto [low, high] = std::minmax_element(one, one + count);
  const auto [least, most] = std::minmax_element(two, two + other);
  return *low <= *most && *least <= *high;
}

const Index* documents(const Index* all, Index b, Index tokens, Index from) {
  return all ? all + b * tokens + from : nullptr;
}

// one row of a tile: products become weights, relative to the largest score so far; what was summed up shrinks by it
template <class T>
void soften(float* __restrict scores, T* weights, const float* __restrict bias, float scale, Index count, Index total,
            float& top, float& mass, float* __restrict sum, Index depth) {
  float now = top;
#pragma omp simd reduction(max : now)
  for (Index c = 0; c < count; ++c) {
    scores[c] = scores[c] * scale + bias[c];
    now = now < scores[c] ? scores[c] : now;
  }
  const float base = now == NEVER ? 0.f : now, shrink = exponential(top - base);
  float added = 0.f;
#pragma omp simd reduction(+ : added)
  for (Index c = 0; c < count; ++c) {
    const float weight = exponential(scores[c] - base);
    added += weight;
    narrow(weight, weights[c]);
  }
  for (Index c = count; c < total; ++c) weights[c] = 0.f;
  mass = mass * shrink + added;
  top = now;
  if (shrink == 1.f) return;
#pragma omp simd
  for (Index c = 0; c < depth; ++c) sum[c] *= shrink;
}

// the keys and values of one head, laid out for products
template <class T>
struct Held {
  Buffer<T> keys, values;
  Index head = -1;

  Held(const Job& job) : keys(padded(job.keys) * job.width), values(padded(job.keys) * job.depth) {}

  void read(const Job& job, Index b, Index g) {
    if (head == b * job.key_heads + g) return;
    head = b * job.key_heads + g;
    for (Index n = 0; n < job.keys; n += PANEL) {
      const Index count = min(PANEL, job.keys - n);
      pack_columns(job.k.row<T>(b, g, n), job.k.token, count, job.width, keys + n * job.width);
      pack_rows(job.v.row<T>(b, g, n), job.v.token, count, PANEL, job.depth, values + n * job.depth);
    }
  }
};

// a tile of the way forward: rows are queries, columns are keys
template <class T>
struct Tile {
  Buffer<float> scores{ROWS * COLUMNS}, room{COLUMNS}, sum, top{ROWS}, mass{ROWS};
  Buffer<T> narrowed{PAIRED<T> ? ROWS * COLUMNS : 0};

  Tile(const Job& job) : sum(ROWS * job.depth) {}
  T* weights() { return reinterpret_cast<T*>(PAIRED<T> ? static_cast<void*>(narrowed.data) : scores.data); }
};

template <class T>
void forward_rows(const Job& job, const Held<T>& held, Tile<T>& tile, Index b, Index h, Index block) {
  const Index head = b * job.heads + h, begin = block * ROWS, rows = min(ROWS, job.queries - begin);
  const Index last = job.last[block], *asks = documents(job.q_document, b, job.queries, begin);
  const float* table = job.table + h * job.pitch() + job.queries - 1 - begin;
  std::fill_n(tile.sum.data, rows * job.depth, 0.f);
  std::fill_n(tile.top.data, rows, NEVER);
  std::fill_n(tile.mass.data, rows, 0.f);
  for (Index n = job.first[head * job.blocks() + block] / PANEL * PANEL; n < last; n += COLUMNS) {
    const Index count = min(COLUMNS, last - n), total = padded(count);
    const Index* holds = documents(job.k_document, b, job.keys, n);
    if (!meet(asks, rows, holds, count)) continue;
    for (Index c = 0; c < total; c += PANEL)
      brgemm(rows, PANEL, job.width, job.q.token, PANEL, COLUMNS, false, job.q.row<T>(b, h, begin),
             held.keys + (n + c) * job.width, tile.scores + c, PAIRED<T>);
    for (Index r = 0; r < rows; ++r)
      soften(tile.scores + r * COLUMNS, tile.weights() + r * COLUMNS,
             hide(table + n - r, holds, asks ? asks[r] : 0, count, tile.room), job.scale, count, total, tile.top[r],
             tile.mass[r], tile.sum + r * job.depth, job.depth);
    brgemm(rows, job.depth, total, COLUMNS, job.depth, job.depth, true, tile.weights(), held.values + n * job.depth,
           tile.sum, PAIRED<T>);
  }
  for (Index r = 0; r < rows; ++r) {
    const bool empty = tile.mass[r] == 0.f;
    const Index at = head * job.queries + begin + r;
    job.top[at] = empty ? 0.f : tile.top[r];
    job.share[at] = empty ? 0.f : 1.f / tile.mass[r];
    const float* sum = tile.sum + r * job.depth;
    T* out = job.out.row<T>(b, h, begin + r);
    narrow(sum, out, job.depth, job.share[at]);
    if (T* lost = job.rest<T>(b, h, begin + r))
      for (Index c = 0; c < job.depth; ++c) narrow(sum[c] * job.share[at] - static_cast<float>(out[c]), lost[c]);
  }
}

template <class T>
void forward(const Job& job) {
  const Index groups = job.heads / job.key_heads, heads = job.batch * job.heads;
  // where there are heads for all threads, none is laid out twice
  const Index cuts = heads < at::get_num_threads() ? job.blocks() : 1;
  share(heads * cuts, [&](std::atomic<Index>& next) {
    Held<T> held(job);
    Tile<T> tile(job);
    for (Index task; (task = next++) < heads * cuts;) {
      const Index b = task / cuts / job.heads, h = task / cuts % job.heads;
      held.read(job, b, h / groups);
      if (cuts > 1)
        forward_rows(job, held, tile, b, h, cuts - 1 - task % cuts);  // the longest first
      else
        for (Index block = 0; block < job.blocks(); ++block) forward_rows(job, held, tile, b, h, block);
    }
    at::native::cpublas::brgemm_release(PAIRED<T>);
  });
}

// everything of one query head that the way back reads again and again, laid out for its products
template <class T>
struct Asked {
  Buffer<T> q_columns, q_rows, up_columns, up_rows;
  Buffer<float> delta, dq;  // dq: (width, pitch)
  Index pitch;

  Asked(const Job& job)
      : q_columns(padded(job.queries) * job.width), q_rows(padded(job.queries) * job.width),
        up_columns(padded(job.queries) * job.depth), up_rows(padded(job.queries) * job.depth),
        delta(job.queries), dq(job.width * (padded(job.queries) + 16)),
        pitch(padded(job.queries) + 16) {}

  void read(const Job& job, Index b, Index h) {
    for (Index i = 0; i < job.queries; i += PANEL) {
      const Index count = min(PANEL, job.queries - i);
      const T *q = job.q.row<T>(b, h, i), *up = job.gradient.row<T>(b, h, i);
      pack_columns(q, job.q.token, count, job.width, q_columns + i * job.width);
      pack_columns(up, job.gradient.token, count, job.depth, up_columns + i * job.depth);
      pack_rows(q, job.q.token, count, PANEL, job.width, q_rows + i * job.width);
      pack_rows(up, job.gradient.token, count, PANEL, job.depth, up_rows + i * job.depth);
    }
    for (Index i = 0; i < job.queries; ++i) {
      const T *up = job.gradient.row<T>(b, h, i), *out = job.out.row<T>(b, h, i);
      double sum = 0.;
#pragma omp simd reduction(+ : sum)
      for (Index c = 0; c < job.depth; ++c) sum += static_cast<double>(up[c]) * static_cast<double>(out[c]);
      if (const T* rest = job.rest<T>(b, h, i))
        for (Index c = 0; c < job.depth; ++c) sum += static_cast<float>(up[c]) * static_cast<float>(rest[c]);
      delta[i] = sum;
    }
    std::fill_n(dq.data, job.width * pitch, 0.f);
  }

  void write(const Job& job, Index b, Index h) const {
    for (Index i = 0; i < job.queries; i += 16)
      for (Index c = 0; c < job.width; ++c)
        for (Index r = i; r < min(i + 16, job.queries); ++r)
          narrow(dq[c * pitch + r] * static_cast<float>(job.scale), job.dq.row<T>(b, h, r)[c]);
  }
};

// a tile of the way back: rows are keys, columns are queries
template <class T>
struct BackTile {
  Buffer<float> scores{ROWS * COLUMNS}, slopes{ROWS * COLUMNS}, room{COLUMNS}, dk, dv;
  Buffer<T> narrow_scores{PAIRED<T> ? ROWS * COLUMNS : 0}, narrow_slopes{PAIRED<T> ? ROWS * COLUMNS : 0};
  Buffer<T> pairs{PAIRED<T> ? ROWS * COLUMNS : 0};

  BackTile(const Job& job) : dk(ROWS * job.width), dv(ROWS * job.depth) {}
  T* weights() { return reinterpret_cast<T*>(PAIRED<T> ? static_cast<void*>(narrow_scores.data) : scores.data); }
  T* narrowed() { return reinterpret_cast<T*>(PAIRED<T> ? static_cast<void*>(narrow_slopes.data) : slopes.data); }

  // the weights again and the slopes of the scores, for `rows` keys from n and `count` queries from m
  void differentiate(const Job& job, const Asked<T>& asked, Index b, Index h, Index n, Index rows, Index m, Index count) {
    const Index total = padded(count), along = m + job.keys - 1 - n, head = b * job.heads + h;
    const Index *holds = documents(job.k_document, b, job.keys, n), *asks = documents(job.q_document, b, job.queries, m);
    const float *table = job.table + h * job.pitch() + along, *__restrict delta = asked.delta + m;
    const float *__restrict top = job.top + head * job.queries + m, *__restrict part = job.share + head * job.queries + m;
    const float scale = job.scale;
    float* dtable = job.dtable ? job.dtable + head * job.pitch() + along : nullptr;
    for (Index r = 0; r < rows; ++r) {
      float *__restrict score = scores + r * COLUMNS, *__restrict slope = slopes + r * COLUMNS;
      T *narrow_score = weights() + r * COLUMNS, *narrow_slope = narrowed() + r * COLUMNS;
      const float* __restrict bias = hide(table - r, asks, holds ? holds[r] : 0, count, room);
#pragma omp simd
      for (Index c = 0; c < count; ++c) {
        const float weight = exponential(score[c] * scale + bias[c] - top[c]) * part[c];
        slope[c] = weight * (slope[c] - delta[c]);
        narrow(weight, narrow_score[c]);
        if constexpr (PAIRED<T>) narrow(slope[c], narrow_slope[c]);
      }
      for (Index c = count; c < total; ++c) narrow_score[c] = narrow_slope[c] = 0.f;
      if (!dtable) continue;
      float* __restrict sums = dtable - r;
#pragma omp simd
      for (Index c = 0; c < count; ++c) sums[c] += slope[c];
    }
  }
};

// the queries of [m, m + COLUMNS) that may see a key of [n, n + rows), in whole blocks: where they begin and how many
std::pair<Index, Index> seeing(const Job& job, Index head, Index m, Index n, Index rows) {
  Index begin = job.queries, end = 0;
  for (Index i = m; i < min(m + COLUMNS, job.queries); i += ROWS) {
    if (job.first[head * job.blocks() + i / ROWS] >= n + rows || job.last[i / ROWS] <= n) continue;
    begin = min(begin, i);
    end = min(i + ROWS, job.queries);
  }
  return {begin, std::max<Index>(0, end - begin)};
}

template <class T>
void backward_keys(const Job& job, Asked<T>& asked, BackTile<T>& tile, const T* k_columns, Index k_pitch, Index b, Index g,
                   Index h, Index n, Index rows) {
  const Index even = parts(rows, 2) * 2, head = b * job.heads + h;
  for (Index start = 0; start < job.queries; start += COLUMNS) {
    const auto [m, count] = seeing(job, head, start, n, rows);
    if (!count || !meet(documents(job.k_document, b, job.keys, n), rows, documents(job.q_document, b, job.queries, m), count))
      continue;
    const Index total = padded(count);
    for (Index c = 0; c < total; c += PANEL) {
      brgemm(rows, PANEL, job.width, job.k.token, PANEL, COLUMNS, false, job.k.row<T>(b, g, n),
             asked.q_columns + (m + c) * job.width, tile.scores + c, PAIRED<T>);
      brgemm(rows, PANEL, job.depth, job.v.token, PANEL, COLUMNS, false, job.v.row<T>(b, g, n),
             asked.up_columns + (m + c) * job.depth, tile.slopes + c, PAIRED<T>);
    }
    tile.differentiate(job, asked, b, h, n, rows, m, count);
    brgemm(rows, job.depth, total, COLUMNS, job.depth, job.depth, true, tile.weights(), asked.up_rows + m * job.depth,
           tile.dv, PAIRED<T>);
    brgemm(rows, job.width, total, COLUMNS, job.width, job.width, true, tile.narrowed(), asked.q_rows + m * job.width,
           tile.dk, PAIRED<T>);
    if constexpr (PAIRED<T>) pack_rows<T>(tile.narrowed(), COLUMNS, rows, even, COLUMNS, tile.pairs);
    const T* right = PAIRED<T> ? tile.pairs.data : tile.narrowed();
    for (Index c = 0; c < total; c += PANEL)
      brgemm(job.width, PANEL, PAIRED<T> ? even : rows, k_pitch, COLUMNS, asked.pitch, true, k_columns + n,
             right + c * (PAIRED<T> ? 2 : 1), asked.dq + m + c, PAIRED<T>);
  }
}

template <class T>
void backward(const Job& job) {
  const Index groups = job.heads / job.key_heads, tasks = job.batch * job.key_heads, k_pitch = padded(job.keys) + 16;
  share(tasks, [&](std::atomic<Index>& next) {
    std::vector<std::unique_ptr<Asked<T>>> asked;
    for (Index member = 0; member < groups; ++member) asked.push_back(std::make_unique<Asked<T>>(job));
    BackTile<T> tile(job);
    Buffer<T> k_columns(job.width * k_pitch);
    for (Index task; (task = next++) < tasks;) {
      const Index b = task / job.key_heads, g = task % job.key_heads;
      for (Index member = 0; member < groups; ++member) asked[member]->read(job, b, g * groups + member);
      for (Index n = 0; n < k_pitch; n += 16)
        for (Index c = 0; c < job.width; ++c)
          for (Index j = n; j < n + 16; ++j) k_columns[c * k_pitch + j] = j < job.keys ? job.k.row<T>(b, g, j)[c] : T(0.f);
      for (Index n = 0; n < job.keys; n += ROWS) {
        const Index rows = min(ROWS, job.keys - n);
        std::fill_n(tile.dk.data, rows * job.width, 0.f);
        std::fill_n(tile.dv.data, rows * job.depth, 0.f);
        for (Index member = 0; member < groups; ++member)
          backward_keys<T>(job, *asked[member], tile, k_columns, k_pitch, b, g, g * groups + member, n, rows);
        for (Index r = 0; r < rows; ++r) {
          narrow(tile.dk + r * job.width, job.dk.row<T>(b, g, n + r), job.width, job.scale);
          narrow(tile.dv + r * job.depth, job.dv.row<T>(b, g, n + r), job.depth);
        }
      }
      for (Index member = 0; member < groups; ++member) asked[member]->write(job, b, g * groups + member);
    }
    at::native::cpublas::brgemm_release(PAIRED<T>);
  });
}

// what went wrong, or null; the text lives until the next failure of this thread
template <class Work>
const char* guarded(const Work& work) {
  thread_local std::string message;
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}

}  // namespace

extern "C" const char* ordinate_forward(const Job* job, bool bfloat16) {
  return guarded([&] { bfloat16 ? forward<c10::BFloat16>(*job) : forward<float>(*job); });
}

extern "C" const char* ordinate_backward(const Job* job, bool bfloat16) {
  return guarded([&] { bfloat16 ? backward<c10::BFloat16>(*job) : backward<float>(*job); });
}
