// softmax(q k^T scale + table) v over visible pairs, in tiles, forward and backward: O(n) memory.
//
// table[h][j - i + queries - 1] is added to the score of query i and key j; causality and windows are -inf in it.
// Products are oneDNN's, by way of libtorch; for 16-bit types their right side holds pairs of rows side by side. Every
// tensor is read and written where it lies, by strides.

#include "backward.h"
#include "forward.h"

namespace {

template <class T>
void attend(const Job& job) {
  job.back ? backward<T>(job) : forward<T>(job);
}

}  // namespace

extern "C" const char* ordinate_attention(const Job* job) {
  return guarded([&] { job->bfloat16 ? attend<c10::BFloat16>(*job) : attend<float>(*job); });
}
