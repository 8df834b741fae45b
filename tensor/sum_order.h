// The order of sums over ranks and devices. Private to the library.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace primitives {

/// Sums over ranks and devices add in the order of a balanced binary tree: n terms are the sum of the first
/// tree_split(n), the largest power of two below n, plus the sum of the others, both in this order. So five terms are
/// ((x0 + x1) + (x2 + x3)) + x4, and consecutive groups of 2^k terms may be summed first without changing any bit.
constexpr size_t tree_split(size_t n) {
  size_t split = 1;
  while (2 * split < n) split *= 2;
  return split;
}

/// add() of term(first), .., term(first + n - 1) in that order, unrolled.
template <size_t n, size_t first = 0, class Term, class Add>
constexpr auto tree_sum(const Term& term, const Add& add) {
  if constexpr (n == 1) {
    return term(first);
  } else {
    constexpr size_t kSplit = tree_split(n);
    return add(tree_sum<kSplit, first>(term, add), tree_sum<n - kSplit, first + kSplit>(term, add));
  }
}

/// Adds term k to the sums of 2^level terms that wait for as many others. Recursive, so that GPUs keep `waiting` in
/// registers.
template <int level, int levels, class T, class Add>
TANDEM_HOST_DEVICE void add_term(int64_t k, bool is_last, T& sum, T (&waiting)[levels], const Add& add) {
  if constexpr (level < levels) {
    if ((k >> level & 1) != 0) {
      sum = add(waiting[level], sum);
    } else if (!is_last) {
      waiting[level] = sum;
      return;
    }
    add_term<level + 1>(k, is_last, sum, waiting, add);
  }
}

/// add() of term(0), .., term(n - 1) in that order, for n known at run time only: at least 1, at most 2^levels.
template <int levels, class Term, class Add>
TANDEM_HOST_DEVICE auto tree_sum(int64_t n, const Term& term, const Add& add) {
  decltype(term(n)) sum, waiting[levels];
  for (int64_t k = 0; k < n; ++k) {
    sum = term(k);
    add_term<0>(k, k + 1 == n, sum, waiting, add);
  }
  return sum;
}

}}}  // namespace tandem::v0::primitives
