// softmax(q k^T scale + table) v over visible pairs, in tiles, forward and backward: O(n) memory.
//
// table[h][j - i + queries - 1] is added to the score of query i and key j; causal mask and window are -inf in it.
// Products are oneDNN's batch-reduce GEMM from libtorch; for 16-bit types their right operand has pairs of rows
// interleaved. Tensors are read and written in place, by strides. T is the type of the tensors, P that of the operands of
// products: float for tensors of bfloat16, a tile at a time, where the processor cannot multiply bfloat16.

#include "backward.h"
#include "forward.h"

namespace {

template <class T, class P>
void attend(const Job& job) {
  job.back ? backward<T, P>(job) : forward<T, P>(job);
}

}  // namespace

extern "C" const char* ordinate_attention(const Job* job) {
  return guarded([&] {
    if (!job->bfloat16) return attend<float, float>(*job);
    job->wide ? attend<c10::BFloat16, float>(*job) : attend<c10::BFloat16, c10::BFloat16>(*job);
  });
}
