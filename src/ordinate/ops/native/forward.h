// Forward pass of attention by blocks of queries: an online softmax over tiles of keys.

#pragma once

#include "tiles.h"

namespace {

// apply the soft cap to one row of a tile
inline void bend_row(float* __restrict scores, float scale, float cap, Index count) {
#pragma omp simd
  for (Index c = 0; c < count; ++c) scores[c] = bend(scores[c] * scale, cap);
}

// online softmax of one row of a tile: products become weights relative to the largest score so far; earlier sums are
// rescaled if that has grown
template <class P>
void soften(float* __restrict scores, P* weights, const float* __restrict bias, float scale, Index count, Index total,
            float& top, float& mass, float* __restrict sum, Index depth) {
  float now = top;
#pragma omp simd reduction(max : now)
  for (Index c = 0; c < count; ++c) {
    scores[c] = scores[c] * scale + bias[c];
    now = now < scores[c] ? scores[c] : now;
  }
  // a row that is masked so far would compute -inf - -inf
  const float base = now == NEVER ? 0.f : now, shrink = exponential(top - base);
  float added = 0.f;
#pragma omp simd reduction(+ : added)
  for (Index c = 0; c < count; ++c) {
    scores[c] = exponential(scores[c] - base);
    added += scores[c];
  }
  std::fill(scores + count, scores + total, 0.f);
  if constexpr (PAIRED<P>) narrow(scores, weights, total);
  mass = mass * shrink + added;
  top = now;
  if (shrink == 1.f) return;
#pragma omp simd
  for (Index c = 0; c < depth; ++c) sum[c] *= shrink;
}

// keys and values of one head, packed for products
template <class T, class P>
struct Held {
  Buffer<P> keys, values;
  Index head = -1;

  Held(const Job& job) : keys(padded(job.keys) * job.width), values(padded(job.keys) * job.depth) {}

  void read(const Job& job, Index b, Index g) {
    if (head == b * job.key_heads + g) return;
    head = b * job.key_heads + g;
    for (Index n = 0; n < job.keys; n += PANEL) {
      const Index count = min(PANEL, job.keys - n);
      pack_columns<T, P>(job.k.row<T>(b, g, n), job.k.token, count, job.width, keys + n * job.width);
      pack_rows<T, P>(job.v.row<T>(b, g, n), job.v.token, count, PANEL, job.depth, values + n * job.depth);
    }
  }
};

// tile of the forward pass: rows are queries, columns are keys
template <class T, class P>
struct Tile {
  Buffer<float> scores{ROWS * COLUMNS}, room{COLUMNS}, sum, top{ROWS}, mass{ROWS};
  Buffer<float> tops;  // largest score so far of each row in each tile, by which weights that are returned were scaled
  Buffer<P> narrowed{PAIRED<P> ? ROWS * COLUMNS : 0}, queries;

  Tile(const Job& job)
      : sum(ROWS * job.depth), tops(job.weights ? ROWS * tiles(job) : 0),
        queries(CONVERTED<T, P> ? ROWS * job.width : 0) {}
  // the first may begin before the keys of a block
  static Index tiles(const Job& job) { return parts(job.keys, COLUMNS) + 1; }
  P* weights() { return reinterpret_cast<P*>(PAIRED<P> ? static_cast<void*>(narrowed.data) : scores.data); }
};

template <class T, class P>
void forward_rows(const Job& job, const Held<T, P>& held, Tile<T, P>& tile, Index b, Index h, Index block) {
  const Index head = b * job.heads + h, begin = block * ROWS, rows = min(ROWS, job.queries - begin);
  const Index last = job.last[head * job.blocks() + block], *asks = documents(job.q_document, b, job.queries, begin);
  const float* table = job.table + h * job.pitch() + job.queries - 1 - begin;
  const Index reach = begin + job.reach(h);  // the last key that the first query of the block sees
  const auto [queries, pitch] = left_rows<T, P>(job.q, b, h, begin, rows, job.width, tile.queries);
  std::fill_n(tile.sum.data, rows * job.depth, 0.f);
  // an attention sink is a key that every query has read already, whose value is 0
  std::fill_n(tile.top.data, rows, job.sinks ? job.sinks[h] : NEVER);
  std::fill_n(tile.mass.data, rows, job.sinks ? 1.f : 0.f);
  const Index start = job.first[head * job.blocks() + block] / PANEL * PANEL, tiles = tile.tiles(job);
  if (job.weights) std::fill_n(tile.tops.data, rows * tiles, NEVER);
  for (Index n = start; n < last; n += COLUMNS) {
    const Index count = min(COLUMNS, last - n), total = whole(count);
    const Index* holds = documents(job.k_document, b, job.keys, n);
    if (!meet(asks, rows, holds, count)) continue;
    // keys are hidden from the queries before the first that sees one of them
    const auto asking = [&](Index c, Index) { return std::pair(floored(n + c - reach, STEP, rows), rows); };
    for (Index c = 0; c < total; c += PANEL) {
      const Index from = asking(c, 0).first;
      if (from < rows)
        brgemm(rows - from, min(PANEL, total - c), job.width, pitch, PANEL, COLUMNS, false, queries + from * pitch,
               held.keys + (n + c) * job.width, tile.scores + from * COLUMNS + c, PAIRED<P>);
    }
    for (Index r = 0; r < rows; ++r) {
      const Index seen = raised(reach + r + 1 - n, LANES, count);
      float* scores = tile.scores + r * COLUMNS;
      if (job.cap) bend_row(scores, job.scale, job.cap, seen);
      const float* pairs = job.bias.data ? job.bias.row<float>(b, h, begin + r) + n : nullptr;
      soften(scores, tile.weights() + r * COLUMNS,
             row_bias(table + n - r, pairs, holds, asks ? asks[r] : 0, seen, tile.room), job.cap ? 1.f : job.scale, seen,
             total, tile.top[r], tile.mass[r], tile.sum + r * job.depth, job.depth);
      if (!job.weights || tile.mass[r] == 0.f) continue;
      std::copy_n(scores, seen, job.weights + (head * job.queries + begin + r) * job.keys + n);
      tile.tops[r * tiles + (n - start) / COLUMNS] = tile.top[r];
    }
    add_product<P>(asking, job.depth, total, job.depth, tile.weights(), held.values + n * job.depth, tile.sum);
  }
  for (Index r = 0; r < rows; ++r) {
    const bool empty = tile.mass[r] == 0.f;
    const Index at = head * job.queries + begin + r;
    job.top[at] = empty ? 0.f : tile.top[r];
    job.share[at] = empty ? 0.f : 1.f / tile.mass[r];
    const float* __restrict sum = tile.sum + r * job.depth;
    const float share = job.share[at];
    for (Index n = start; n < (job.weights ? last : 0); n += COLUMNS) {
      const float then = tile.tops[r * tiles + (n - start) / COLUMNS], part = exponential(then - tile.top[r]) * share;
      float* __restrict weights = job.weights + at * job.keys;
#pragma omp simd
      for (Index j = n; j < (then == NEVER ? n : min(n + COLUMNS, last)); ++j) weights[j] *= part;
    }
    T* __restrict out = job.out.row<T>(b, h, begin + r);
    narrow(sum, out, job.depth, share);
    if constexpr (PAIRED<T>) {
      int8_t* __restrict lost = job.rest(b, h, begin + r);
#pragma omp simd
      for (Index c = 0; c < (lost ? job.depth : 0); ++c) lost[c] = lose(sum[c] * share, out[c]);
    }
  }
}

template <class T, class P>
void forward(const Job& job) {
  const Index groups = job.heads / job.key_heads, heads = job.batch * job.heads;
  // with fewer heads than threads, heads are split into blocks of queries; otherwise each head is packed only once
  const Index cuts = heads < at::get_num_threads() ? job.blocks() : 1;
  share(heads * cuts, [&](std::atomic<Index>& next) {
    Held<T, P> held(job);
    Tile<T, P> tile(job);
    for (Index task; (task = next++) < heads * cuts;) {
      const Index b = task / cuts / job.heads, h = task / cuts % job.heads;
      held.read(job, b, h / groups);
      if (cuts > 1)
        forward_rows(job, held, tile, b, h, cuts - 1 - task % cuts);  // longest first: threads finish together
      else
        for (Index block = 0; block < job.blocks(); ++block) forward_rows(job, held, tile, b, h, block);
    }
    at::native::cpublas::brgemm_release(PAIRED<P>);
  });
}

}  // namespace
