// Copy of the transpose of a matrix of 32-bit numbers.

#include "transpose.h"

namespace {

constexpr Index GRAIN = 256;  // rows for which a thread is worth its start

struct Job {
  Index rows, columns;
  const float* source;  // (rows, columns)
  float* out;           // (columns, rows)
};

}  // namespace

extern "C" const char* ordinate_transpose(const Job* job) {
  return guarded([&] {
    parallel_for(parts(job->rows, SIDE), GRAIN / SIDE, [&](Index begin, Index end) {
      const Index row = begin * SIDE, stop = min(end * SIDE, job->rows);
      transpose({job->source + row * job->columns, job->columns}, stop - row, job->columns, {job->out + row, job->rows});
    });
  });
}
