#include <tandem/examples/reinforce/cart_pole.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace examples {

namespace td = tandem;

namespace {

constexpr double kGravity = 9.8;      // m/s^2
constexpr double kCartMass = 1;       // kg
constexpr double kPoleMass = 0.1;     // kg
constexpr double kHalfLength = 0.5;   // of the pole, m
constexpr double kForce = 10;         // of a push, N
constexpr double kStep = 0.02;        // s
constexpr double kMaxPosition = 2.4;  // m
constexpr double kMaxAngle = 12 * std::numbers::pi / 180;

std::array<double, 4> moved(const std::array<double, 4>& state, double force) {
  const auto [position, velocity, angle, angular_velocity] = state;
  constexpr double kMass = kCartMass + kPoleMass;
  const double sine = std::sin(angle), cosine = std::cos(angle);
  const double push = (force + kPoleMass * kHalfLength * angular_velocity * angular_velocity * sine) / kMass;
  const double angular_acceleration =
      (kGravity * sine - cosine * push) / (kHalfLength * (4.0 / 3 - kPoleMass * cosine * cosine / kMass));
  const double acceleration = push - kPoleMass * kHalfLength * angular_acceleration * cosine / kMass;
  return {position + kStep * velocity, velocity + kStep * acceleration, angle + kStep * angular_velocity,
          angular_velocity + kStep * angular_acceleration};
}

}  // namespace

CartPoles::CartPoles(const td::Tensor& starts) {
  const std::vector<double> values = starts.to_vector<double>();
  for (size_t i = 0; i < values.size(); i += 4)
    carts_.push_back({.state = {values[i], values[i + 1], values[i + 2], values[i + 3]}});
}

td::Tensor CartPoles::states() const {
  const td::Tensor states = td::empty({size(), 4});
  auto* to = states.data<float>();
  for (const Cart& cart : carts_)
    to = std::transform(cart.state.begin(), cart.state.end(), to, [](double x) { return static_cast<float>(x); });
  return states;
}

bool CartPoles::are_all_over() const {
  return std::none_of(carts_.begin(), carts_.end(), [](const Cart& cart) { return cart.is_balanced; });
}

void CartPoles::step(std::span<const int64_t> actions) {
  ++num_steps_;
  for (size_t i = 0; i < carts_.size(); ++i) {
    Cart& cart = carts_[i];
    if (!cart.is_balanced) continue;
    cart.state = moved(cart.state, actions[i] == 1 ? kForce : -kForce);
    cart.is_balanced =
        num_steps_ < kMaxSteps && std::abs(cart.state[0]) <= kMaxPosition && std::abs(cart.state[2]) <= kMaxAngle;
  }
}

}  // namespace examples
