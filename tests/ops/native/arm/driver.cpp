// Runs one kernel on a job read from a file, without PyTorch: the functions that kernels call in libtorch are here.
//
// The file holds, as 64-bit numbers and bytes: the size of the job and the job; the number of tensors, and of each its
// size and content; the number of addresses in the job, and of each its place in the job, its tensor, and its place in
// that tensor. The tensors are written back over the file, without sizes, and the message of the kernel after them.

#include <omp.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

namespace at {
void init_num_threads() {}
int get_num_threads() { return omp_get_max_threads(); }
int get_thread_num() { return omp_get_thread_num(); }
bool in_parallel_region() { return omp_in_parallel(); }
namespace internal {
void set_thread_num(int) {}
}  // namespace internal
namespace native::cpublas {
void brgemm(int64_t rows, int64_t columns, int64_t inner, int64_t pitch_a, int64_t pitch_b, int64_t pitch_c,
            const bool add, const float* a, const float* b, float* c, bool) {
  for (int64_t i = 0; i < rows; ++i) {
    float* to = c + i * pitch_c;
    if (!add) std::memset(to, 0, columns * sizeof(float));
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t j = 0; j < columns; ++j) to[j] += a[i * pitch_a + k] * b[k * pitch_b + j];
  }
}
// 16-bit products are converted to float32 before they come here, except on x86-64 with AVX-512
void brgemm(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, const bool, const at::BFloat16*, const at::BFloat16*,
            float*, bool) {
  std::abort();
}
void brgemm_release(bool) {}
}  // namespace native::cpublas
}  // namespace at

namespace c10 {
ParallelGuard::ParallelGuard(bool state) : previous_state_(state) {}
ParallelGuard::~ParallelGuard() {}
}  // namespace c10

extern "C" const char* KERNEL(const void* job);

int main(int, char** names) {
  std::FILE* file = std::fopen(names[1], "rb");
  const auto number = [&] {
    int64_t read;
    if (std::fread(&read, sizeof read, 1, file) != 1) std::abort();
    return read;
  };
  const auto content = [&](int64_t size) {
    // aligned as PyTorch aligns tensors
    char* data = static_cast<char*>(std::aligned_alloc(64, (size + 64) / 64 * 64));
    if (size && std::fread(data, size, 1, file) != 1) std::abort();
    return data;
  };
  char* job = content(number());
  std::vector<char*> tensors(number());
  std::vector<int64_t> sizes;
  for (char*& tensor : tensors) {
    sizes.push_back(number());
    tensor = content(sizes.back());
  }
  for (int64_t addresses = number(); addresses; --addresses) {
    const int64_t at = number(), tensor = number();
    char* address = tensors[tensor] + number();
    std::memcpy(job + at, &address, sizeof address);
  }
  std::fclose(file);
  const char* message = KERNEL(job);
  file = std::fopen(names[1], "wb");
  for (size_t i = 0; i < tensors.size(); ++i) std::fwrite(tensors[i], 1, sizes[i], file);
  if (message) std::fputs(message, file);
  return std::fclose(file);
}
