// The cart-pole task: a cart on a track must balance a pole.
#pragma once

#include <tandem/tandem.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace examples {

/// Carts on tracks, each with a pole that is hinged to it: A. Barto, R. Sutton and C. Anderson, "Neuronlike adaptive
/// elements that can solve difficult learning control problems", IEEE Transactions on Systems, Man, and Cybernetics,
/// 1983; with the constants of Gymnasium's CartPole-v1. An episode is over when the cart is more than 2.4 m from the
/// middle, when the pole leans more than 12 degrees, or after 500 steps of 20 ms. Each step has a reward of 1.
class CartPoles {
 public:
  static constexpr int64_t kMaxSteps = 500;
  static constexpr int64_t kNumActions = 2;  ///< push to the left, push to the right

  /// `starts`: float32 [n, 4]: position (m), velocity (m/s), angle (rad), angular velocity (rad/s) of each cart.
  explicit CartPoles(const tandem::Tensor& starts);

  int64_t size() const { return static_cast<int64_t>(carts_.size()); }
  tandem::Tensor states() const;  ///< float32 [n, 4]
  /// Whether the episode of cart i is not over.
  bool is_balanced(int64_t i) const { return carts_[static_cast<size_t>(i)].is_balanced; }
  bool are_all_over() const;
  /// Pushes each cart whose episode is not over.
  void step(std::span<const int64_t> actions);

 private:
  struct Cart {
    std::array<double, 4> state;
    bool is_balanced = true;
  };

  std::vector<Cart> carts_;
  int64_t num_steps_ = 0;
};

}  // namespace examples
