// Matrix-valued recurrence of RWKV-6 and RWKV-7, forward and backward: one pass over time.
//
// Row j of a state S belongs to a channel of the keys, its columns to the channels of the values:
//
//   RWKV-6:  y = r S + (sum_j r_j u_j k_j) v,   then S_j <- e^{w_j} S_j + k_j v
//   RWKV-7:  S_j <- e^{w_j} S_j + b_j (a S) + k_j v,   then y = r S
//
// Columns are independent: a panel of them stays in the L1 cache for the whole sequence. One state in CHUNK is stored
// for the backward pass, which recomputes the others.

#include "row.h"

namespace {

constexpr Index CHUNK = 32;
constexpr Index AHEAD = 8;    // tokens whose rows are prefetched
constexpr Index NARROW = 16;  // columns of the narrowest panel; others have two or four times as many

struct Job {
  bool back, delta;                          // delta: as in RWKV-7
  Index batch, heads, tokens, width, depth;  // width: channels of a key, depth: of a value
  View r, w, k, v, a, b, y;                  // w: logarithms of decays
  const float* bonus;                        // (heads, width): u
  const float* start;                        // (batch, heads, width, depth)
  float *end, *kept;                         // kept: (batch, heads, panels, chunks, width, columns of a panel), or null
  View gradient, dr, dw, dk, dv, da, db;
  const float* gradient_end;                 // or null
  float *dbonus, *dstart;                    // dbonus: (batch, heads, width), initialised to 0

  Index chunks() const { return parts(tokens, CHUNK); }
};

// a panel of columns of one head: the recurrence of its state and the gradients
template <int P, bool DELTA>
struct Panel {
  using Columns = Row<P>;
  const Job& job;
  const Index row, head, first, count;
  float* kept;
  Buffer<float> decay;
  const float* bonus;

  Panel(const Job& job, Index row, Index head, Index first)
      : job(job), row(row), head(head), first(first), count(min(P * LANES, job.depth - first)), decay(job.width) {
    const Index panels = parts(job.depth, P * LANES), panel = (row * job.heads + head) * panels + first / (P * LANES);
    kept = job.kept ? job.kept + panel * job.chunks() * job.width * P * LANES : nullptr;
    bonus = DELTA ? nullptr : job.bonus + head * job.width;
  }

  float* key(const View& view, Index t) const { return view.row<float>(row, head, t); }
  // gradient row to which all panels of columns add; the first panel clears it
  float* cleared(const View& view, Index t) const {
    return first ? key(view, t) : std::fill_n(key(view, t), job.width, 0.f) - job.width;
  }
  Columns value(const View& view, Index t) const { return Columns::read(key(view, t) + first, count); }
  // row j of this panel in the states of all heads
  template <class T>
  T* of_state(T* states, Index j) const {
    return states + ((row * job.heads + head) * job.width + j) * job.depth + first;
  }

  // the rows of a head are far apart in memory, which hardware prefetchers do not follow
  template <int WRITE, class... Views>
  [[gnu::always_inline]] void fetch(Index t, const Views&... views) const {
    if (t < 0 || t >= job.tokens) return;
    for (Index j = 0; j < job.width; j += LANES) (__builtin_prefetch(key(views, t) + j, WRITE), ...);
  }
  [[gnu::always_inline]] void fetch_inputs(Index t) const {
    fetch<0>(t, job.r, job.w, job.k, job.v);
    if constexpr (DELTA) fetch<0>(t, job.a, job.b);
  }
  [[gnu::always_inline]] void fetch_gradients(Index t) const {
    fetch<0>(t, job.gradient);
    fetch<1>(t, job.dr, job.dw, job.dk, job.dv);
    if constexpr (DELTA) fetch<1>(t, job.da, job.db);
  }

  void decays(Index t) {
    const float* __restrict w = key(job.w, t);
    float* __restrict to = decay;
    // NaN is propagated
#pragma omp simd
    for (Index j = 0; j < job.width; ++j) to[j] = w[j] == w[j] ? exponential(w[j]) : w[j];
  }

  // a S, for the a of token t
  Columns seen(const Columns* state, Index t) const {
    Columns sum = Columns::zero();
    if (DELTA && t < job.tokens)
      for (Index j = 0; j < job.width; ++j) sum.add(key(job.a, t)[j], state[j]);
    return sum;
  }

  // Compute the state after token t from the one before; returns the output of the token. `saw` is a S for this token
  // on entry, and for the next token on return.
  Columns step(const Columns* from, Columns* to, Index t, Columns& saw) {
    decays(t);
    const float *r = key(job.r, t), *k = key(job.k, t), *e = decay;
    const float *b = DELTA ? key(job.b, t) : nullptr, *a = DELTA && t + 1 < job.tokens ? key(job.a, t + 1) : nullptr;
    const Columns v = value(job.v, t), sees = saw;
    Columns y = Columns::zero(), next = Columns::zero();
    float self = 0;
    for (Index j = 0; j < job.width; ++j) {
      Columns s = from[j];
      if constexpr (!DELTA) y.add(r[j], s), self += r[j] * bonus[j] * k[j];
      s.scale(e[j]);
      s.add(k[j], v);
      if constexpr (DELTA) {
        s.add(b[j], sees);
        y.add(r[j], s);
        if (a) next.add(a[j], s);
      }
      to[j] = s;
    }
    if constexpr (!DELTA) y.add(self, v);
    saw = next;
    return y;
  }

  void forward() {
    Buffer<Columns> state(job.width);
    for (Index j = 0; j < job.width; ++j) state[j] = Columns::read(of_state(job.start, j), count);
    Columns saw = seen(state, 0);
    for (Index t = 0; t < job.tokens; ++t) {
      if (kept && t % CHUNK == 0)
        std::memcpy(kept + t / CHUNK * job.width * P * LANES, state.data, job.width * sizeof(Columns));
      fetch_inputs(t + AHEAD);
      step(state, state, t, saw).write(key(job.y, t) + first, count);
    }
    for (Index j = 0; j < job.width; ++j) state[j].write(of_state(job.end, j), count);
  }

  // gradients of token t, and of the state before it from those of the state after it
  void ask(const Columns* before, const Columns* after, Columns* asked, const Columns& saw, Index t) {
    decays(t);
    const float *r = key(job.r, t), *k = key(job.k, t), *e = decay;
    const Columns g = value(job.gradient, t), v = value(job.v, t);
    float *dr = cleared(job.dr, t), *dw = cleared(job.dw, t), *dk = cleared(job.dk, t);
    Columns dv = Columns::zero();
    if constexpr (DELTA) {
      const float *a = key(job.a, t), *b = key(job.b, t);
      float *da = cleared(job.da, t), *db = cleared(job.db, t);
      Columns dsaw = Columns::zero();
      for (Index j = 0; j < job.width; ++j) {
        Columns d = asked[j];
        d.add(r[j], g);
        dr[j] += dot(after[j], g);
        dk[j] += dot(d, v);
        db[j] += dot(d, saw);
        dw[j] += e[j] * dot(d, before[j]);
        dv.add(k[j], d);
        dsaw.add(b[j], d);
        d.scale(e[j]);
        asked[j] = d;
      }
      for (Index j = 0; j < job.width; ++j) {
        da[j] += dot(before[j], dsaw);
        asked[j].add(a[j], dsaw);
      }
    } else {
      const float own = dot(v, g);
      float self = 0, *dbonus = job.dbonus + (row * job.heads + head) * job.width;
      for (Index j = 0; j < job.width; ++j) {
        Columns d = asked[j];
        dr[j] += dot(before[j], g) + bonus[j] * k[j] * own;
        dk[j] += dot(d, v) + bonus[j] * r[j] * own;
        dw[j] += e[j] * dot(d, before[j]);
        dbonus[j] += r[j] * k[j] * own;
        self += r[j] * bonus[j] * k[j];
        dv.add(k[j], d);
        d.scale(e[j]);
        d.add(r[j], g);
        asked[j] = d;
      }
      dv.add(self, g);
    }
    dv.write(key(job.dv, t) + first, count);
  }

  void backward() {
    Buffer<Columns> states((CHUNK + 1) * job.width), asked(job.width), saw(CHUNK + 1);
    for (Index j = 0; j < job.width; ++j)
      asked[j] = job.gradient_end ? Columns::read(of_state(job.gradient_end, j), count) : Columns::zero();
    for (Index chunk = job.chunks(); chunk-- > 0;) {
      const Index begin = chunk * CHUNK, tokens = min(CHUNK, job.tokens - begin);
      std::memcpy(states.data, kept + chunk * job.width * P * LANES, job.width * sizeof(Columns));
      saw[0] = seen(states, begin);
      for (Index i = 0; i < tokens; ++i) {
        saw[i + 1] = saw[i];
        step(states + i * job.width, states + (i + 1) * job.width, begin + i, saw[i + 1]);
      }
      for (Index i = tokens; i-- > 0;) {
        fetch_inputs(begin + i - CHUNK);
        fetch_gradients(begin + i - AHEAD);
        ask(states + i * job.width, states + (i + 1) * job.width, asked, saw[i], begin + i);
      }
    }
    for (Index j = 0; j < job.width; ++j) asked[j].write(of_state(job.dstart, j), count);
  }
};

template <int P, bool DELTA>
void work(const Job& job) {
  const Index heads = job.batch * job.heads;
  share(heads, [&](std::atomic<Index>& next) {
    for (Index task; (task = next++) < heads;)
      for (Index first = 0; first < job.depth; first += P * LANES) {
        Panel<P, DELTA> panel(job, task / job.heads, task % job.heads, first);
        job.back ? panel.backward() : panel.forward();
      }
  });
}

template <bool DELTA>
void fit(const Job& job) {
  constexpr int FEW = NARROW / LANES;
  if (job.depth <= NARROW) return work<FEW, DELTA>(job);
  job.depth <= 2 * NARROW ? work<2 * FEW, DELTA>(job) : work<4 * FEW, DELTA>(job);
}

}  // namespace

extern "C" const char* ordinate_recurrence(const Job* job) {
  return guarded([&] { job->delta ? fit<true>(*job) : fit<false>(*job); });
}
