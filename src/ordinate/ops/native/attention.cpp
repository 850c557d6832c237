// softmax(q k^T scale + table) v over visible pairs, in tiles, forward and backward: O(n) memory.
//
// table[h][j - i + queries - 1] is added to the score of query i and key j; causal mask and window are -inf in it.
// Products are oneDNN's batch-reduce GEMM from libtorch; for 16-bit types their right operand has pairs of rows
// interleaved. Tensors are read and written in place, by strides.

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
