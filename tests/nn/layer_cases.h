// The layers that //tests/nn:pytorch_layers_test compares with PyTorch's modules.
#pragma once

#include <tandem/tests/nn/nn.h>

namespace tandem::testing {

/// A layer that has a case of the same name in tools/fixtures/layer_cases.py.
struct LayerCase {
  std::string family;  ///< the fixture is tests/fixtures/nn/<family>_layers.safetensors
  std::string name;
  std::function<std::unique_ptr<nn::Module>()> make;
  /// Calls the module; the results in the order in which PyTorch returns them.
  std::function<std::vector<Tensor>(nn::Module&, const std::vector<Tensor>&)> call;
};

/// The cases of one family.
class LayerCases {
 public:
  LayerCases(std::string family, std::vector<LayerCase>& cases) : family_(std::move(family)), cases_(cases) {}

  /// Adds a layer: `make()` constructs it. Its call gets the first input.
  template <class Make>
  void add(std::string name, Make make) {
    add(
        std::move(name), [](auto& layer, const std::vector<Tensor>& in) { return layer(in[0]); }, make);
  }
  /// Adds a module: `make()` constructs it, `call(module, inputs)` returns a tensor or a vector of tensors.
  template <class Call, class Make>
  void add(std::string name, Call call, Make make) {
    using M = std::invoke_result_t<Make>;
    cases_.push_back({family_, std::move(name), [make] { return std::unique_ptr<nn::Module>(new M(make())); },
                      [call](nn::Module& module, const std::vector<Tensor>& inputs) -> std::vector<Tensor> {
                        return {call(static_cast<M&>(module), inputs)};
                      }});
  }

 private:
  std::string family_;
  std::vector<LayerCase>& cases_;
};

void add_linear_layers(LayerCases cases);
void add_conv_layers(LayerCases cases);
void add_norm_layers(LayerCases cases);
void add_activation_layers(LayerCases cases);
void add_loss_layers(LayerCases cases);
void add_resize_layers(LayerCases cases);
void add_recurrent_layers(LayerCases cases);
void add_attention_layers(LayerCases cases);

inline std::vector<LayerCase> all_layer_cases() {
  std::vector<LayerCase> all;
  add_linear_layers({"linear", all});
  add_conv_layers({"conv", all});
  add_norm_layers({"norm", all});
  add_activation_layers({"activation", all});
  add_loss_layers({"loss", all});
  add_resize_layers({"resize", all});
  add_recurrent_layers({"recurrent", all});
  add_attention_layers({"attention", all});
  return all;
}

}  // namespace tandem::testing
