// Largest magnitude of many numbers, in one pass over their memory.
//
// Without the sign bit, the bits of floating-point numbers are in the order of their magnitudes as whole numbers; those
// of infinity are above all others, and those of NaN above these.

#include "job.h"

namespace {

constexpr Index AXES = 3;       // beside the run
constexpr Index BLOCK = 16384;  // numbers per task
constexpr Index GRAIN = 8;      // tasks for which a thread is worth its start

struct Job {
  Index bits;  // of a number: 16 or 32
  Index sizes[AXES], strides[AXES];
  Index run;  // numbers that lie side by side
  const void* x;
  void* out;
};

template <class Bits>
Bits largest(const Bits* __restrict x, Index count) {
  constexpr Bits MAGNITUDE = std::numeric_limits<Bits>::max();  // all bits but that of the sign
  Bits most = 0;
#pragma omp simd reduction(max : most)
  for (Index i = 0; i < count; ++i) {
    const Bits own = x[i] & MAGNITUDE;
    most = most < own ? own : most;
  }
  return most;
}

template <class Bits>
void find(const Job& job) {
  const Index blocks = parts(job.run, BLOCK), runs = job.sizes[0] * job.sizes[1] * job.sizes[2];
  std::atomic<Bits> found{0};
  parallel_for(runs * blocks, std::max<Index>(1, GRAIN * BLOCK / min(BLOCK, job.run)), [&](Index begin, Index end) {
    Bits most = 0;
    for (Index task = begin; task < end; ++task) {
      Index rest = task / blocks, start = task % blocks * BLOCK;
      const Index count = min(BLOCK, job.run - start);
      for (Index axis = AXES; axis--; rest /= job.sizes[axis]) start += rest % job.sizes[axis] * job.strides[axis];
      most = std::max(most, largest(static_cast<const Bits*>(job.x) + start, count));
    }
    for (Bits known = found; known < most && !found.compare_exchange_weak(known, most);) {
    }
  });
  *static_cast<Bits*>(job.out) = found;
}

}  // namespace

extern "C" const char* ordinate_largest(const Job* job) {
  return guarded([&] { job->bits == 16 ? find<int16_t>(*job) : find<int32_t>(*job); });
}
