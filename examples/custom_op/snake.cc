#include "snake.h"

#include <cmath>

#include <tandem/ops/check.h>

namespace custom_op {

namespace td = tandem;

namespace {

template <class T>
td::Tensor run(const td::KernelContext& context, const td::Tensor& x, double alpha) {
  const td::Tensor in = x.contiguous();
  const td::Tensor out = td::empty(x.shape(), x.options());
  if (context.device.is_cpu()) {
    snake_cpu(x.numel(), in.data<T>(), static_cast<T>(alpha), out.data<T>());
  } else {
#ifdef TANDEM_WITH_CUDA
    snake_gpu(context, x.numel(), in.data<T>(), static_cast<T>(alpha), out.data<T>());
#endif
  }
  return out;
}

struct Snake : td::autograd::Function<Snake> {
  double alpha = 1;

  td::Tensor forward(const td::Tensor& x, double given_alpha) {
    alpha = given_alpha;
    const td::KernelContext context = td::ops::check_same_device("snake", {{"x", x}});
    TANDEM_CHECK(ValueError, alpha > 0, "snake: alpha is ", alpha, ", must be positive");
    TANDEM_CHECK(DTypeError, x.dtype() == td::kFloat32 || x.dtype() == td::kFloat64,
                 td::ops::operand_error("snake", "x must be float32 or float64", {{"x", x}}));
    save_for_backward({x});
    return x.dtype() == td::kFloat32 ? run<float>(context, x, alpha) : run<double>(context, x, alpha);
  }

  // Written in operations, so it has derivatives itself.
  td::TensorList backward(const td::TensorList& grad_outputs) override {
    const td::Tensor x = saved_tensor(0);
    return {grad_outputs[0] * (td::sin(x * (2 * alpha)) + 1)};
  }
};

}  // namespace

template <class T>
void snake_cpu(int64_t n, const T* x, T alpha, T* y) {
  td::parallel_for(n, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T s = std::sin(alpha * x[i]);
      y[i] = x[i] + s * s / alpha;
    }
  });
}

td::Tensor snake(const td::Tensor& x, double alpha) { return Snake::apply(x, alpha); }

}  // namespace custom_op
