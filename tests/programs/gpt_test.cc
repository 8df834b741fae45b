// A GPT, alone and data-parallel by hand.
#include <tandem/tandem.h>
#include <tandem/tests/nn/drawn.h>

namespace td = tandem;
namespace nn = td::nn;

namespace {

constexpr int64_t kTokens = 11, kLength = 12, kBatch = 8, kWidth = 16, kHeads = 2;

struct Block : nn::Layer {
  nn::LayerNorm& norm1 = add<nn::LayerNorm>("norm1", kWidth);
  nn::Linear& qkv = add<nn::Linear>("qkv", kWidth, 3 * kWidth);
  nn::Linear& proj = add<nn::Linear>("proj", kWidth, kWidth);
  nn::LayerNorm& norm2 = add<nn::LayerNorm>("norm2", kWidth);
  nn::Sequential& mlp =
      add<nn::Sequential>("mlp", nn::Linear(kWidth, 4 * kWidth), nn::GELU(), nn::Linear(4 * kWidth, kWidth));

  td::Tensor forward(const td::Tensor& x) override {
    const int64_t n = x.size(0), t = x.size(1);
    const auto heads = [&](const td::Tensor& y) { return y.reshape(n, t, kHeads, -1).transpose(1, 2); };
    const auto parts = qkv(norm1(x)).split(kWidth, 2);
    const td::Tensor y =
        td::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), {.is_causal = true});
    const td::Tensor z = x + proj(y.transpose(1, 2).reshape(n, t, kWidth));
    return z + mlp(norm2(z));
  }
};

struct Gpt : nn::Layer {
  nn::Embedding& token = add<nn::Embedding>("token", kTokens, kWidth);
  nn::Embedding& position = add<nn::Embedding>("position", kLength, kWidth);
  nn::Sequential& blocks = add<nn::Sequential>("blocks", Block(), Block());
  nn::LayerNorm& norm = add<nn::LayerNorm>("norm", kWidth);
  nn::Linear& head = add<nn::Linear>("head", kWidth, kTokens, {.bias = false});

  td::Tensor forward(const td::Tensor& tokens) override {
    return head(norm(blocks(token(tokens) + position(td::arange(tokens.size(1), td::kLong)))));
  }
};

/// The losses of a rank that trains with its part of each batch.
std::vector<double> train(td::distributed::ProcessGroup& group) {
  Gpt model;
  td::testing::draw_weights(model);
  std::vector<td::Tensor> decayed, others;
  for (const td::Tensor& p : model.parameters()) (p.dim() > 1 ? decayed : others).push_back(p);
  td::optim::AdamW optimizer({{.parameters = decayed, .options = {.lr = 1e-2, .weight_decay = 0.1}},
                              {.parameters = others, .options = {.lr = 1e-2, .weight_decay = 0}}});
  const int64_t part = kBatch / group.size();
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    const td::Tensor begins = (td::arange(part, td::kLong) + part * group.rank()).unsqueeze(1) * 7 + step;
    const td::Tensor places = begins + td::arange(kLength + 1, td::kLong);
    const td::Tensor text = td::remainder(places * places, kTokens);
    optimizer.zero_grad();
    const td::Tensor logits = model(text.narrow(1, 0, kLength));
    const td::Tensor loss = td::cross_entropy(logits.flatten(0, 1), text.narrow(1, 1, kLength).flatten());
    loss.backward();
    for (const td::Tensor& p : model.parameters()) group.all_reduce(p.grad(), td::distributed::ReduceOp::kAvg);
    td::optim::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
    const td::Tensor mean = loss.detach();
    group.all_reduce(mean, td::distributed::ReduceOp::kAvg);
    losses.push_back(mean.item());
  }
  return losses;
}

TEST(Programs, Gpt) {
  for (const int num_ranks : {1, 2, 4}) {
    td::distributed::run_threads(num_ranks, [](td::distributed::Context& context) {
      const auto losses = train(*context.group());
      if (context.rank() == 0) td::testing::expect_recorded_losses(losses, "gpt", 1e-9);
    });
  }
}

}  // namespace
