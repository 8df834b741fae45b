#include <tandem/examples/reinforce/cart_pole.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using examples::CartPoles;

namespace {

// Values of the equations of motion in Python.
TEST(CartPoles, StatesFollowTheEquationsOfMotion) {
  CartPoles carts(td::tensor({{0.01, -0.02, 0.03, 0.04}, {0, 0, 0, 0}}));
  for (const int64_t action : {1, 0, 1, 1}) carts.step(std::vector<int64_t>{action, 1});
  const std::vector<float> states = carts.states().to_vector<float>();
  const std::vector<double> expected = {0.0161536424, 0.3685958115, 0.0226175942, -0.5092253183};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(states[i], expected[i], 1e-6) << i;
  EXPECT_TRUE(carts.is_balanced(0));
}

TEST(CartPoles, EpisodesEndAtTheLimits) {
  // A pole that is pushed to one side, a cart that leaves the track, and a pole that leans too much.
  CartPoles carts(td::tensor({{0, 0, 0, 0}, {2.39, 1, 0, 0}, {0, 0, 0.2, 1}}));
  carts.step(std::vector<int64_t>{1, 1, 1});
  EXPECT_TRUE(carts.is_balanced(0));
  EXPECT_FALSE(carts.is_balanced(1));
  EXPECT_FALSE(carts.is_balanced(2));
  int64_t num_steps = 1;
  for (; !carts.are_all_over(); ++num_steps) carts.step(std::vector<int64_t>{1, 1, 1});
  EXPECT_EQ(num_steps, 9);
  EXPECT_NEAR(carts.states()[1][0].item(), 2.41, 1e-6);  // does not move any more
}

TEST(CartPoles, EpisodesEndAfter500Steps) {
  CartPoles carts(td::zeros({1, 4}));
  int64_t num_steps = 0;
  for (; !carts.are_all_over(); ++num_steps) {
    const std::vector<float> state = carts.states().to_vector<float>();
    carts.step(std::vector<int64_t>{state[2] + state[3] + 0.1f * state[0] + 0.2f * state[1] > 0 ? 1 : 0});
  }
  EXPECT_EQ(num_steps, CartPoles::kMaxSteps);
}

}  // namespace
