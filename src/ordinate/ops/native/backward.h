// Backward pass of attention, by blocks of keys: the weights of a tile are recomputed with keys as rows, so that no
// product needs a transpose. One thread computes a whole key head in a fixed order: the results are deterministic.

#pragma once

#include "tiles.h"

namespace {

// inputs of one query head that every block of keys reads, packed once for its products; and the gradient of q
template <class T, class P>
struct Asked {
  // rows that must be converted are, a tile at a time: see `rows`
  static constexpr bool HELD = !CONVERTED<T, P>;
  Buffer<P> q_columns, q_rows, up_columns, up_rows;
  Buffer<float> delta, dq;  // dq: (width, pitch)
  Index pitch;

  Asked(const Job& job)
      : q_columns(padded(job.queries) * job.width), q_rows(HELD ? padded(job.queries) * job.width : 0),
        up_columns(padded(job.queries) * job.depth), up_rows(HELD ? padded(job.queries) * job.depth : 0),
        delta(job.queries), dq(job.width * (padded(job.queries) + 16)),
        pitch(padded(job.queries) + 16) {}

  void read(const Job& job, Index b, Index h) {
    for (Index i = 0; i < job.queries; i += PANEL) {
      const Index count = min(PANEL, job.queries - i);
      const T *q = job.q.row<T>(b, h, i), *up = job.gradient.row<T>(b, h, i);
      pack_columns<T, P>(q, job.q.token, count, job.width, q_columns + i * job.width);
      pack_columns<T, P>(up, job.gradient.token, count, job.depth, up_columns + i * job.depth);
      if constexpr (HELD) {
        pack_rows<T, P>(q, job.q.token, count, PANEL, job.width, q_rows + i * job.width);
        pack_rows<T, P>(up, job.gradient.token, count, PANEL, job.depth, up_rows + i * job.depth);
      }
    }
    for (Index i = 0; i < job.queries; ++i) {
      const T *up = job.gradient.row<T>(b, h, i), *out = job.out.row<T>(b, h, i);
      const int8_t* lost = job.rest(b, h, i);
      double sum = 0.;
#pragma omp simd reduction(+ : sum)
      for (Index c = 0; c < job.depth; ++c) {
        // delta is a difference of nearly equal terms later on: a bfloat16 output needs the digits that rounding took
        float exact = out[c];
        if constexpr (PAIRED<T>) exact = lost ? restore(out[c], lost[c]) : exact;
        sum += static_cast<double>(up[c]) * exact;
      }
      const Index pairs = ((b * job.heads + h) * job.queries + i) * job.keys;
#pragma omp simd reduction(+ : sum)
      for (Index j = pairs; j < pairs + (job.dweights ? job.keys : 0); ++j)
        sum += static_cast<double>(job.weights[j]) * job.dweights[j];
      delta[i] = sum;
    }
    if (job.dsinks) {
      const Index head = b * job.heads + h;
      double sum = 0.;
      for (Index i = head * job.queries; i < (head + 1) * job.queries; ++i)
        sum -= exponential(job.sinks[h] - job.top[i]) * job.share[i] * static_cast<double>(delta[i - head * job.queries]);
      job.dsinks[head] = sum;
    }
    std::fill_n(dq.data, job.width * pitch, 0.f);
  }

  // rows of `count` queries from m as a right operand: packed before, or now in `room`
  static const P* rows(const View& view, const P* held, Index b, Index h, Index m, Index count, Index width, P* room) {
    if constexpr (HELD) return held + m * width;
    pack_rows<T, P>(view.row<T>(b, h, m), view.token, count, padded(count), width, room);
    return room;
  }

  void write(const Job& job, Index b, Index h) const {
    if constexpr (std::is_same_v<T, float>) {
      float* __restrict all = dq.data;
#pragma omp simd
      for (Index c = 0; c < job.width * pitch; ++c) all[c] *= static_cast<float>(job.scale);
      return transpose({all, pitch}, job.width, job.queries, {job.dq.row<float>(b, h, 0), job.dq.token});
    }
    for (Index i = 0; i < job.queries; i += 16)
      for (Index c = 0; c < job.width; ++c)
        for (Index r = i; r < min(i + 16, job.queries); ++r)
          narrow(dq[c * pitch + r] * static_cast<float>(job.scale), job.dq.row<T>(b, h, r)[c]);
  }
};

// tile of the backward pass: rows are keys, columns are queries
template <class T, class P>
struct BackTile {
  Buffer<float> scores{ROWS * COLUMNS}, slopes{ROWS * COLUMNS}, room{COLUMNS}, dk, dv;
  Buffer<P> narrow_scores{PAIRED<P> ? ROWS * COLUMNS : 0}, narrow_slopes{PAIRED<P> ? ROWS * COLUMNS : 0};
  Buffer<P> pairs{PAIRED<P> ? ROWS * COLUMNS : 0};
  Buffer<float> steepness;  // derivative of the soft cap at each score
  Buffer<float> turned;     // numbers of pairs, transposed
  Buffer<P> k_columns;  // (width, PITCH)
  Buffer<P> k_rows, v_rows, right_rows;  // converted, or empty
  static constexpr Index PITCH = ROWS + 16;

  BackTile(const Job& job)
      : dk(ROWS * job.width), dv(ROWS * job.depth), steepness(job.cap ? ROWS * COLUMNS : 0),
        turned(job.bias.data || job.dweights ? ROWS * COLUMNS : 0),
        k_columns(job.width * PITCH), k_rows(CONVERTED<T, P> ? ROWS * job.width : 0),
        v_rows(CONVERTED<T, P> ? ROWS * job.depth : 0),
        right_rows(CONVERTED<T, P> ? COLUMNS * std::max(job.width, job.depth) : 0) {}
  P* weights() { return reinterpret_cast<P*>(PAIRED<P> ? static_cast<void*>(narrow_scores.data) : scores.data); }
  P* narrowed() { return reinterpret_cast<P*>(PAIRED<P> ? static_cast<void*>(narrow_slopes.data) : slopes.data); }

  // start a block of keys: clear its gradients and transpose the keys
  void turn(const Job& job, Index b, Index g, Index n, Index rows) {
    std::fill_n(dk.data, rows * job.width, 0.f);
    std::fill_n(dv.data, rows * job.depth, 0.f);
    if constexpr (std::is_same_v<T, float>) {
      for (Index c = 0; c < job.width; ++c) std::fill(k_columns + c * PITCH + rows, k_columns + (c + 1) * PITCH, 0.f);
      return transpose({job.k.row<float>(b, g, n), job.k.token}, rows, job.width, {k_columns, PITCH});
    }
    for (Index r = 0; r < rows; r += 16)
      for (Index c = 0; c < job.width; ++c)
        for (Index j = r; j < r + 16; ++j)
          k_columns[c * PITCH + j] = j < rows ? static_cast<P>(job.k.row<T>(b, g, n + j)[c]) : P(0.f);
  }

  // recompute the weights and the gradients of the scores, for `rows` keys from n and `count` queries from m; the first
  // key is hidden from the queries before number `first`, and each further one from one more
  void differentiate(const Job& job, Asked<T, P>& asked, Index b, Index h, Index n, Index rows, Index m, Index count,
                     Index first) {
    const Index total = whole(count), along = m + job.keys - 1 - n, head = b * job.heads + h;
    const Index* holds = documents(job.k_document, b, job.keys, n);
    const Index* asks = documents(job.q_document, b, job.queries, m);
    const float* table = job.table + h * job.pitch() + along;
    const float* __restrict top = job.top + head * job.queries + m;
    const float* __restrict part = job.share + head * job.queries + m;
    const float scale = job.cap ? 1.f : job.scale;
    const auto hidden = [&](Index r) { return floored(first + r, LANES, count); };
    for (Index r = 0; r < rows && job.cap; ++r) bend_row(job, r, hidden(r), count);
    float* __restrict delta = asked.delta + m;
    float* dtable = job.dtable ? job.dtable + head * job.pitch() + along : nullptr;
    if (job.dweights) {
      transpose({job.dweights + (head * job.queries + m) * job.keys + n, job.keys}, count, rows, {turned, COLUMNS});
      for (Index r = 0; r < rows; ++r)
#pragma omp simd
        for (Index c = hidden(r); c < count; ++c) slopes[r * COLUMNS + c] += turned[r * COLUMNS + c];
    }
    if (job.bias.data)
      transpose({job.bias.row<float>(b, h, m) + n, job.bias.token}, count, rows, {turned, COLUMNS});
    const auto weigh = [&](Index r) {
      float* __restrict score = scores + r * COLUMNS;
      const float* pairs = job.bias.data ? turned + r * COLUMNS : nullptr;
      const float* __restrict bias = row_bias(table - r, pairs, asks, holds ? holds[r] : 0, count, room);
#pragma omp simd
      for (Index c = hidden(r); c < count; ++c)
        score[c] = exponential(score[c] * scale + bias[c] - top[c]) * part[c];
    };
    // delta = sum of weight * slope equals gradient * output up to the rounding of the output. With few keys that error
    // does not average out; but then one tile has all keys, and delta is summed exactly from them.
    const bool summed = job.keys <= ROWS;
    if (summed) std::fill_n(delta, count, 0.f);
    for (Index r = 0; r < rows && summed; ++r) {
      weigh(r);
      const float *__restrict score = scores + r * COLUMNS, *__restrict slope = slopes + r * COLUMNS;
#pragma omp simd
      for (Index c = hidden(r); c < count; ++c) delta[c] += score[c] * slope[c];
    }
    for (Index r = 0; r < rows; ++r) {
      if (!summed) weigh(r);
      float *__restrict score = scores + r * COLUMNS, *__restrict slope = slopes + r * COLUMNS;
      const Index from = hidden(r);
      std::fill_n(score, from, 0.f);
      std::fill_n(slope, from, 0.f);
#pragma omp simd
      for (Index c = from; c < count; ++c) slope[c] = score[c] * (slope[c] - delta[c]);
      for (Index c = count; c < total; ++c) score[c] = slope[c] = 0.f;
      if (dtable) {
        float* __restrict sums = dtable - r;
#pragma omp simd
        for (Index c = from; c < count; ++c) sums[c] += slope[c];
      }
      const float* __restrict steep = steepness + r * COLUMNS;
#pragma omp simd
      for (Index c = from; c < (job.cap ? count : 0); ++c) slope[c] *= steep[c];
      if constexpr (PAIRED<P>) {
        narrow(score, narrow_scores + r * COLUMNS, total);
        narrow(slope, narrow_slopes + r * COLUMNS, total);
      }
    }
    if (job.dbias.data) transpose({slopes, COLUMNS}, rows, count, {job.dbias.row<float>(b, h, m) + n, job.dbias.token});
  }

  // apply the soft cap to the products of a row, and keep its derivative
  void bend_row(const Job& job, Index r, Index from, Index count) {
    const float scale = job.scale, cap = job.cap;
    float *__restrict score = scores + r * COLUMNS, *__restrict steep = steepness + r * COLUMNS;
#pragma omp simd
    for (Index c = from; c < count; ++c) {
      score[c] = bend(score[c] * scale, cap);
      steep[c] = 1.f - score[c] / cap * (score[c] / cap);
    }
  }
};

// range of queries in [m, m + COLUMNS) that may attend to a key in [n, n + rows), in whole blocks: begin and count
std::pair<Index, Index> seeing(const Job& job, Index head, Index m, Index n, Index rows) {
  Index begin = job.queries, end = 0;
  for (Index i = m; i < min(m + COLUMNS, job.queries); i += ROWS) {
    const Index block = head * job.blocks() + i / ROWS;
    if (job.first[block] >= n + rows || job.last[block] <= n) continue;
    begin = min(begin, i);
    end = min(i + ROWS, job.queries);
  }
  return {begin, std::max<Index>(0, end - begin)};
}

template <class T, class P>
void backward_keys(const Job& job, Asked<T, P>& asked, BackTile<T, P>& tile, Index b, Index g, Index h, Index n,
                   Index rows) {
  const Index even = parts(rows, 2) * 2, head = b * job.heads + h, reach = job.reach(h);
  const auto [keys, k_pitch] = left_rows<T, P>(job.k, b, g, n, rows, job.width, tile.k_rows);
  const auto [values, v_pitch] = left_rows<T, P>(job.v, b, g, n, rows, job.depth, tile.v_rows);
  for (Index start = 0; start < job.queries; start += COLUMNS) {
    const auto [m, count] = seeing(job, head, start, n, rows);
    const Index* holds = documents(job.k_document, b, job.keys, n);
    if (!count || !meet(holds, rows, documents(job.q_document, b, job.queries, m), count)) continue;
    const Index total = whole(count), first = n - reach - m;
    // queries see no key after the last that the last of them sees
    const auto holding = [&](Index, Index end) { return std::pair(Index(0), raised(end - first, STEP, rows)); };
    for (Index c = 0; c < total; c += PANEL) {
      const Index held = holding(c, c + PANEL).second;
      if (!held) continue;
      const Index wide = min(PANEL, total - c);
      brgemm(held, wide, job.width, k_pitch, PANEL, COLUMNS, false, keys, asked.q_columns + (m + c) * job.width,
             tile.scores + c, PAIRED<P>);
      brgemm(held, wide, job.depth, v_pitch, PANEL, COLUMNS, false, values, asked.up_columns + (m + c) * job.depth,
             tile.slopes + c, PAIRED<P>);
    }
    tile.differentiate(job, asked, b, h, n, rows, m, count, first);
    add_product<P>(holding, job.depth, total, job.depth, tile.weights(),
                   asked.rows(job.gradient, asked.up_rows, b, h, m, count, job.depth, tile.right_rows), tile.dv);
    add_product<P>(holding, job.width, total, job.width, tile.narrowed(),
                   asked.rows(job.q, asked.q_rows, b, h, m, count, job.width, tile.right_rows), tile.dk);
    if constexpr (PAIRED<P>) pack_rows<P, P>(tile.narrowed(), COLUMNS, rows, even, COLUMNS, tile.pairs);
    const P* right = PAIRED<P> ? tile.pairs.data : tile.narrowed();
    for (Index c = 0; c < total; c += PANEL) {
      const Index held = holding(c, c + PANEL).second;
      if (held)
        brgemm(job.width, min(PANEL, total - c), PAIRED<P> ? parts(held, 2) * 2 : held, tile.PITCH, COLUMNS, asked.pitch, true,
               tile.k_columns.data, right + c * (PAIRED<P> ? 2 : 1), asked.dq + m + c, PAIRED<P>);
    }
  }
}

template <class T, class P>
void backward(const Job& job) {
  const Index groups = job.heads / job.key_heads, tasks = job.batch * job.key_heads;
  share(tasks, [&](std::atomic<Index>& next) {
    std::vector<std::unique_ptr<Asked<T, P>>> asked;
    for (Index member = 0; member < groups; ++member) asked.push_back(std::make_unique<Asked<T, P>>(job));
    BackTile<T, P> tile(job);
    for (Index task; (task = next++) < tasks;) {
      const Index b = task / job.key_heads, g = task % job.key_heads;
      for (Index member = 0; member < groups; ++member) asked[member]->read(job, b, g * groups + member);
      for (Index n = 0; n < job.keys; n += ROWS) {
        const Index rows = min(ROWS, job.keys - n);
        tile.turn(job, b, g, n, rows);
        for (Index member = 0; member < groups; ++member)
          backward_keys<T, P>(job, *asked[member], tile, b, g, g * groups + member, n, rows);
        for (Index r = 0; r < rows; ++r) {
          narrow(tile.dk + r * job.width, job.dk.row<T>(b, g, n + r), job.width, job.scale);
          narrow(tile.dv + r * job.depth, job.dv.row<T>(b, g, n + r), job.depth);
        }
      }
      for (Index member = 0; member < groups; ++member) asked[member]->write(job, b, g * groups + member);
    }
    at::native::cpublas::brgemm_release(PAIRED<P>);
  });
}

}  // namespace
