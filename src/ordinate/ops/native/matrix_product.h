// Matrix products of PyTorch, declared here: the header that declares them includes much of its tensor library, which
// takes longer to parse than a kernel to compile. Should a version of PyTorch declare one otherwise, its name in the
// library is another, the kernel cannot be loaded, and another backend takes the call.

#pragma once

#include <c10/util/BFloat16.h>

namespace at::native::cpublas {

// to = a b, or to += a b if `add`: a has (rows, inner), b (inner, columns), with these strides of rows. In bfloat16 b
// has two rows interleaved if `paired`.
void brgemm(int64_t rows, int64_t columns, int64_t inner, int64_t stride_a, int64_t stride_b, int64_t stride_to,
            bool add, const float* a, const float* b, float* to, bool paired = false);
void brgemm(int64_t rows, int64_t columns, int64_t inner, int64_t stride_a, int64_t stride_b, int64_t stride_to,
            bool add, const c10::BFloat16* a, const c10::BFloat16* b, float* to, bool paired = true);

// free what the products of this thread hold
void brgemm_release(bool paired);

}  // namespace at::native::cpublas
