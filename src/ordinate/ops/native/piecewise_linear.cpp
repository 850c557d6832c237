// Continuous, piecewise linear functions of one number, evaluated at many points, forward and backward:
//
//   f_h(x) = level_hp + slope_hp x,  p: the number of knots below x
//
// Computed in double. Neighbouring points mostly lie on one piece, as those of a row of FIRE's bias do: runs of such
// points are looked for first, and are then loops without branches.

#include <vector>

#include "job.h"

namespace {

constexpr Index CHUNK = 2048;  // points per task: what is read for each output stays in the cache

struct Job {
  bool back;
  Index batch, points, outputs, pieces;
  const double *x, *knots;         // (batch, points); (pieces - 1), ascending
  const double *levels, *slopes;   // (outputs, pieces)
  float* out;                      // (batch, outputs, points)
  const float* gradient;           // as out
  double *dx, *dlevels, *dslopes;  // dlevels, dslopes: (chunks, outputs, pieces), initialised to 0

  Index chunks() const { return parts(points, CHUNK); }
};

// a range of points on one piece
struct Run {
  Index begin, end, piece;
};

std::vector<Run> runs_of(const Job& job, const double* x, Index count) {
  std::vector<Run> found;
  const double* end = job.knots + job.pieces - 1;
  for (Index begin = 0, stop; begin < count; begin = stop) {
    // a NaN is on the first piece, alone if not before points of it
    const Index piece = std::lower_bound(job.knots, end, x[begin]) - job.knots;
    const double low = piece ? job.knots[piece - 1] : -std::numeric_limits<double>::infinity();
    const double high = piece < job.pieces - 1 ? job.knots[piece] : std::numeric_limits<double>::infinity();
    stop = begin + 1;
    while (stop < count && x[stop] > low && x[stop] <= high) ++stop;
    found.push_back({begin, stop, piece});
  }
  return found;
}

void evaluate(const Job& job, Index b, Index first, Index count) {
  const double* __restrict x = job.x + b * job.points + first;
  for (const Run& run : runs_of(job, x, count))
    for (Index h = 0; h < job.outputs; ++h) {
      const double level = job.levels[h * job.pieces + run.piece], slope = job.slopes[h * job.pieces + run.piece];
      float* __restrict out = job.out + (b * job.outputs + h) * job.points + first;
#pragma omp simd
      for (Index i = run.begin; i < run.end; ++i) out[i] = static_cast<float>(level + slope * x[i]);
    }
}

void differentiate(const Job& job, Index b, Index first, Index count) {
  const double* __restrict x = job.x + b * job.points + first;
  double* __restrict dx = job.dx + b * job.points + first;
  const Index own = (b * job.chunks() + first / CHUNK) * job.outputs * job.pieces;
  std::fill_n(dx, count, 0.);
  for (const Run& run : runs_of(job, x, count))
    for (Index h = 0; h < job.outputs; ++h) {
      const Index at = h * job.pieces + run.piece;
      const double slope = job.slopes[at];
      const float* __restrict gradient = job.gradient + (b * job.outputs + h) * job.points + first;
      double level_sum = 0., slope_sum = 0.;
#pragma omp simd reduction(+ : level_sum, slope_sum)
      for (Index i = run.begin; i < run.end; ++i) {
        const double up = gradient[i];
        level_sum += up;
        slope_sum += up * x[i];
        dx[i] += up * slope;
      }
      job.dlevels[own + at] += level_sum;
      job.dslopes[own + at] += slope_sum;
    }
}

}  // namespace

extern "C" const char* ordinate_piecewise_linear(const Job* job) {
  return guarded([&] {
    parallel_for(job->batch * job->chunks(), 1, [&](Index begin, Index end) {
      for (Index task = begin; task < end; ++task) {
        const Index b = task / job->chunks(), first = task % job->chunks() * CHUNK;
        const Index count = min(CHUNK, job->points - first);
        job->back ? differentiate(*job, b, first, count) : evaluate(*job, b, first, count);
      }
    });
  });
}
