// GELU, x S(x) where S rises from 0 to 1, and its derivative S(x) + x S'(x), in one pass over memory.
//
//   exact:  S(x) = Phi(x), the cumulative normal distribution
//   tanh:   S(x) = sigmoid(2u),  u = sqrt(2/pi) (x + 0.044715 x^3)
//
// S(-a) = 1 - S(a) for both. With a = |x| and T(a) = S(-a), x S(x) is max(x, 0) - a T(a), and its derivative is r(a) for
// x < 0 and 1 - r(a) otherwise, r(a) = T(a) - a S'(a).

#include <cmath>

#include "job.h"

namespace {

constexpr Index GRAIN = 1 << 14;  // numbers for which a thread is worth its start
constexpr float FAR = 88.f;       // T and r are 0 from here on, so that infinity is no special case

struct Job {
  bool tanh, half;           // half: bfloat16 instead of float32
  Index count;
  const void *x, *gradient;  // gradient: null in the forward pass
  void* out;
};

// T and r as rational functions of x^2, fitted to |x| < 5.7 with relative errors of 3e-8 of (1/2 - T(a)) / a and
// (1/2 - r(a)) / a; both are below 2e-7 beyond
struct Exact {
  static constexpr float END = 5.7f;

  static float tail(float a) {
    const float s = a * a;
    float p = 2.169575792e-08f, q = 1.161974871e-06f;
    p = p * s + 6.289367112e-06f, q = q * s + 7.471253934e-05f;
    p = p * s + 1.737694158e-04f, q = q * s + 1.913232268e-03f;
    p = p * s + 4.706630300e-03f, q = q * s + 2.896433691e-02f;
    p = p * s + 3.443930860e-02f, q = q * s + 2.529927820e-01f;
    p = p * s + 3.989422695e-01f, q = q * s + 1.f;
    return a >= END ? 0.f : .5f - a * p / q;
  }

  static float rest(float a) {
    const float s = a * a;
    float p = -2.126061798e-11f * s + 3.786183019e-09f, q = 4.596886231e-06f;
    p = p * s - 1.960046710e-07f;
    p = p * s + 3.249956649e-05f, q = q * s + 1.370488510e-04f;
    p = p * s - 2.056966107e-04f, q = q * s + 2.771428473e-03f;
    p = p * s + 1.465738026e-02f, q = q * s + 3.566351154e-02f;
    p = p * s - 4.503850326e-02f, q = q * s + 2.768866384e-01f;
    p = p * s + 7.978845887e-01f, q = q * s + 1.f;
    return a >= END ? 0.f : .5f - a * p / q;
  }
};

// T(a) = e / (1 + e),  e = e^(-2u)
struct Tanh {
  static constexpr float TWICE = 1.5957691216f;  // 2 sqrt(2/pi)
  static float power(float a) { return exponential(-TWICE * (a + .044715f * a * a * a)); }

  static float tail(float a) {
    const float e = power(a);
    return e / (1.f + e);
  }

  static float rest(float a) {
    const float e = power(a), both = 1.f / (1.f + e), tail = e * both;
    return tail - a * tail * both * TWICE * (1.f + .134145f * a * a);
  }
};

// a comparison with NaN is false, so that NaN stays
inline float bounded(float x) {
  const float a = std::abs(x);
  return a > FAR ? FAR : a;
}

template <class Form, class T>
void run(const Job& job) {
  const T* __restrict x = static_cast<const T*>(job.x);
  const T* __restrict gradient = static_cast<const T*>(job.gradient);
  T* __restrict out = static_cast<T*>(job.out);
  parallel_for(job.count, GRAIN, [&](Index begin, Index end) {
    if (!gradient) {
#pragma omp simd
      for (Index i = begin; i < end; ++i) {
        const float number = x[i], a = bounded(number);
        narrow((number > 0.f ? number : 0.f) - a * Form::tail(a), out[i]);
      }
      return;
    }
#pragma omp simd
    for (Index i = begin; i < end; ++i) {
      const float number = x[i], rest = Form::rest(bounded(number));
      narrow(gradient[i] * (number < 0.f ? rest : 1.f - rest), out[i]);
    }
  });
}

template <class Form>
void choose(const Job& job) {
  job.half ? run<Form, c10::BFloat16>(job) : run<Form, float>(job);
}

}  // namespace

extern "C" const char* ordinate_gelu(const Job* job) {
  return guarded([&] { job->tanh ? choose<Tanh>(*job) : choose<Exact>(*job); });
}
