// The documented order of sums over ranks, by plain loops.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace tandem::testing {

/// Neighbours are added until one value is left: x[0] + x[1], x[2] + x[3], ..; then those sums, and so on.
template <class T, class Add = std::plus<T>>
T tree_sum(std::vector<T> x, const Add& add = {}) {
  for (size_t width = 1; width < x.size(); width *= 2) {
    for (size_t k = 0; k + width < x.size(); k += 2 * width) x[k] = add(x[k], x[k + width]);
  }
  return x[0];
}

/// The sums of the hosts' sums of of_rank(rank).
template <class OfRank>
auto tree_sum(const std::vector<std::vector<int>>& hosts, const OfRank& of_rank) {
  std::vector<decltype(of_rank(0))> sums;
  for (const std::vector<int>& host : hosts) {
    std::vector<decltype(of_rank(0))> terms;
    for (const int rank : host) terms.push_back(of_rank(rank));
    sums.push_back(tree_sum(terms));
  }
  return tree_sum(sums);
}

}  // namespace tandem::testing
