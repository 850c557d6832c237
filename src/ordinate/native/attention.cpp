// softmax(q k^T scale + table) v over visible pairs, in tiles, forward and backward: O(n) memory.
//
// table[h][j - i + queries - 1] is added to the score of query i and key j; causality and windows are -inf in it.
// Products are oneDNN's, by way of libtorch; for 16-bit types their right side holds pairs of rows side by side. Every
// tensor is read and written where it lies, by strides.

#include "backward.h"
#include "forward.h"

namespace {

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
