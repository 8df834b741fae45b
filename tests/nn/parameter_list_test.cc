#include <tandem/nn/parameter_list.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

TEST(ParameterList, ParametersAreNamedByIndex) {
  nn::Module root;
  nn::ParameterList& list = root.add<nn::ParameterList>("scales", std::vector<td::Tensor>{td::ones({2})});
  td::Tensor& second = list.append(td::full({3}, 2));
  std::vector<std::string> paths;
  for (const auto& [path, tensor] : root.state_dict().tensors()) paths.push_back(path);
  EXPECT_EQ(paths, (std::vector<std::string>{"scales.0", "scales.1"}));
  EXPECT_TRUE(second.requires_grad());
  EXPECT_EQ(&list[1], &second);
  EXPECT_EQ(list.size(), 2);
  int64_t elements = 0;
  for (const td::Tensor& parameter : list) elements += parameter.num_elements();
  EXPECT_EQ(elements, 5);
}

TEST(ParameterList, OutOfRangeIndexIsRejected) {
  nn::ParameterList list;
  EXPECT_EQ(error_text<td::IndexError>([&] { list[0]; }), "ParameterList: index is 0, expected 0 <= index < 0");
}

}  // namespace
