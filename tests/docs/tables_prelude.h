// Variables used by the tables of docs/from_pytorch.md. The rows are compiled but not run, so the variables have no
// values.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tandem/models/gpt2.h>
#include <tandem/models/llama.h>
#include <tandem/models/mobilenet.h>
#include <tandem/models/resnet.h>
#include <tandem/models/vision_transformer.h>
#include <tandem/tandem.h>
#include <tandem/train/metrics.h>
#include <tandem/train/plot.h>
#include <tandem/train/progress.h>
#include <tandem/train/trainer.h>

namespace td = tandem;
namespace nn = tandem::nn;

using Block = nn::Linear;
void init_weights(nn::Module& module);

struct Own : td::autograd::Function<Own> {
  td::Tensor forward(const td::Tensor& x);
  td::TensorList backward(const td::TensorList& grads) override;
};

struct Prelude : nn::Module {
  Prelude();  // declared because of the references, never defined

  // numbers and settings
  int argc;
  char** argv;
  int64_t a, b, c, d, h, n, index;
  uint64_t seed;
  std::string path;
  td::Shape shape;
  td::Device device;
  std::vector<float> values;
  std::vector<double> m, s;
  std::function<void()> step;
  std::function<double(int64_t steps)> decay;
  std::function<void(const td::Tensor& grad)> hook;
  std::function<void(nn::Layer& layer, const td::Tensor& input)> before;
  std::function<td::Tensor(nn::Layer& layer, const td::Tensor& input, const td::Tensor& output)> after;

  // tensors
  td::Tensor x, y, w, t, p, q, k, v, bias, residual, attn_mask, mask, loss;
  std::vector<td::Tensor> inputs, matrices, others;

  // modules
  nn::Sequential& model;
  nn::Linear& net;
  nn::ModuleDict<Block>& heads;
  td::State state;
  nn::BatchNorm2d& bn;
  nn::Linear& fc;
  nn::MultiheadAttention& attn;
  nn::Embedding& embedding;

  // training
  td::optim::AdamW& opt;
  td::optim::AdamWOptions options;
  td::optim::StepLR& schedule;
  td::data::Dataset& ds;
  td::io::Checkpointer& checkpoints;

  // distributed
  td::distributed::Context& ctx;
  td::DistributedDataParallel<nn::Sequential>& ddp;

  // The functions that launch() and gradcheck() call.
  struct Function {
    void operator()(td::distributed::Context& context) const;
    td::Tensor operator()(const std::vector<td::Tensor>& in) const;
  } f;
};
