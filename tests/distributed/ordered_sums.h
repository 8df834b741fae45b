// The reducing operations of a group, whose sums must have the documented order.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/tree_sum.h>

namespace tandem { inline namespace v0 { namespace distributed {

template <class T>
class OrderedSums {
 public:
  /// For a group with these ranks by host, and `each` elements for each rank of a reduce_scatter.
  OrderedSums(const std::vector<std::vector<int>>& hosts, int64_t each, ReduceOp op) : each_(each), op_(op) {
    size_t world = 0;
    for (const auto& host : hosts) world += host.size();
    terms_.resize(world);
    for (int64_t i = 0; i < each * static_cast<int64_t>(world); ++i) {
      for (size_t rank = 0; rank < world; ++rank) terms_[rank].push_back(term(static_cast<int>(rank), i));
      const float sum = testing::tree_sum(
          hosts, [&](int rank) { return static_cast<float>(terms_[static_cast<size_t>(rank)].back()); });
      expected_.push_back(static_cast<T>(op == ReduceOp::kAvg ? sum / static_cast<float>(world) : sum));
    }
  }

  void check_all_reduce(ProcessGroup& group) const {
    const Tensor all = terms(group, {group.size() * each_});
    group.all_reduce(all, op_);
    EXPECT_EQ(floats(all), floats(expected_)) << "all_reduce";
  }

  void check_reduce(ProcessGroup& group, int root) const {
    const Tensor at_root = terms(group, {group.size() * each_});
    group.reduce(at_root, root, op_);
    EXPECT_EQ(floats(at_root), group.rank() == root ? floats(expected_) : floats(terms(group, {group.size() * each_})))
        << "reduce";
  }

  void check_reduce_scatter(ProcessGroup& group) const {
    const Tensor part = from_vector<T>(std::vector<T>(static_cast<size_t>(each_)), {each_});
    group.reduce_scatter(part, terms(group, {group.size(), each_}), op_);
    const auto begin = expected_.begin() + each_ * group.rank();
    EXPECT_EQ(floats(part), floats({begin, begin + each_})) << "reduce_scatter";
  }

 private:
  /// Element i of that rank; sums of these values depend on the order.
  static T term(int rank, int64_t i) {
    const double x = std::sin(1.3 * static_cast<double>(i) + 2.1 * rank) * (rank % 3 == 1 ? 17.0 : 0.3);
    return static_cast<T>(static_cast<float>(x));
  }
  Tensor terms(const ProcessGroup& group, const Shape& shape) const {
    return from_vector<T>(terms_[static_cast<size_t>(group.rank())], shape);
  }
  static std::vector<float> floats(const std::vector<T>& values) { return {values.begin(), values.end()}; }
  static std::vector<float> floats(const Tensor& x) { return floats(x.to_vector<T>()); }

  const int64_t each_;
  const ReduceOp op_;
  std::vector<std::vector<T>> terms_;  // by rank
  std::vector<T> expected_;
};

}}}  // namespace tandem::v0::distributed
