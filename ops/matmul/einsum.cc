// Einstein's summation as sums, products and transposes.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;

namespace {

/// A dimension's label: 'A' to 'Z', 'a' to 'z', or kEllipsis + i for the dimension of "..." that is i-th from the end.
using Label = int;
using Labels = std::vector<Label>;
constexpr Label kEllipsis = 256;

bool contains(const Labels& labels, Label label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

std::string label_text(Label label) {
  return label < kEllipsis ? str('\'', static_cast<char>(label), '\'')
                           : str("... (dimension ", kEllipsis - label - 1, ')');
}

/// A tensor whose dimensions have these labels.
struct Term {
  Tensor tensor;
  Labels labels;

  int64_t size(Label label) const {
    const auto found = std::find(labels.begin(), labels.end(), label);
    return tensor.shape()[static_cast<size_t>(found - labels.begin())];
  }
};

/// The arguments of einsum, for error texts.
struct EinsumArguments {
  const std::string& equation;
  std::vector<std::string> names;
  std::vector<Operand> operands;

  EinsumArguments(const std::string& text, const std::vector<Tensor>& tensors) : equation(text) {
    for (size_t i = 0; i < tensors.size(); ++i) names.push_back(str("tensors[", i, ']'));
    for (size_t i = 0; i < tensors.size(); ++i) operands.push_back({names[i].c_str(), tensors[i]});
  }
  std::string error(const std::string& problem) const {
    return operand_error("einsum", str(problem, " in \"", equation, '"'), operands);
  }
};

/// The labels of one term of the equation; "..." has `num_ellipsis` dimensions.
Labels parse_term(const EinsumArguments& call, std::string_view text, int64_t num_ellipsis) {
  Labels labels;
  bool has_ellipsis = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      labels.push_back(c);
      continue;
    }
    TANDEM_CHECK(ValueError, text.substr(i, 3) == "..." && !has_ellipsis,
                 call.error(str("unexpected '", c, "': a term has letters and at most one ...,")));
    has_ellipsis = true;
    i += 2;
    for (int64_t d = num_ellipsis; d-- > 0;) labels.push_back(kEllipsis + static_cast<Label>(d));
  }
  return labels;
}

/// The term without repeated labels.
Term take_diagonals(const EinsumArguments& call, size_t operand, Term term) {
  for (size_t d2 = 1; d2 < term.labels.size(); ++d2) {
    for (size_t d1 = 0; d1 < d2; ++d1) {
      if (term.labels[d1] != term.labels[d2]) continue;
      const int64_t a = term.tensor.shape()[d1], b = term.tensor.shape()[d2];
      TANDEM_CHECK(
          ShapeError, a == b,
          call.error(str(label_text(term.labels[d1]), " has sizes ", a, " and ", b, " in ", call.names[operand])));
      Term rest = {diagonal(term.tensor, 0, static_cast<int64_t>(d1), static_cast<int64_t>(d2)), term.labels};
      rest.labels.erase(rest.labels.begin() + static_cast<int64_t>(d2));
      rest.labels.erase(rest.labels.begin() + static_cast<int64_t>(d1));
      rest.labels.push_back(term.labels[d1]);
      return take_diagonals(call, operand, rest);
    }
  }
  return term;
}

/// The term summed over the labels for which `summed` holds.
template <class Summed>
Term sum_over(const Term& term, Summed summed) {
  Term result;
  Shape dims;
  for (size_t d = 0; d < term.labels.size(); ++d) {
    if (summed(term.labels[d])) {
      dims.push_back(static_cast<int64_t>(d));
    } else {
      result.labels.push_back(term.labels[d]);
    }
  }
  result.tensor = dims.empty() ? term.tensor : to(sum(term.tensor, dims), term.tensor.dtype());
  return result;
}

/// The term's dimensions in the order of the groups, each group joined to one dimension; an empty group has size 1.
Tensor in_groups(const Term& term, const std::array<Labels, 3>& groups) {
  Shape order, shape;
  for (const Labels& group : groups) {
    int64_t size = 1;
    for (const Label label : group) {
      order.push_back(std::find(term.labels.begin(), term.labels.end(), label) - term.labels.begin());
      size *= term.size(label);
    }
    shape.push_back(size);
  }
  return term.tensor.permute(order).reshape(shape);
}

/// The product of two terms, summed over the labels that are not kept.
template <class Kept>
Term multiply(const Term& left, const Term& right, Kept kept) {
  const Term a = sum_over(left, [&](Label label) { return !kept(label) && !contains(right.labels, label); });
  const Term b = sum_over(right, [&](Label label) { return !kept(label) && !contains(left.labels, label); });
  Labels batch, inner, rows, columns;
  for (const Label label : a.labels) {
    (!contains(b.labels, label) ? rows : kept(label) ? batch : inner).push_back(label);
  }
  for (const Label label : b.labels) {
    if (!contains(a.labels, label)) columns.push_back(label);
  }
  const Tensor a_matrices = in_groups(a, {batch, rows, inner});
  Tensor product;
  if (inner.empty()) {  // nothing is summed: matrices [m, 1] and [1, n]
    product = mul(a_matrices, in_groups(b, {batch, inner, columns}));
  } else if (batch.empty()) {
    product = matmul(a_matrices.squeeze(0), in_groups(b, {batch, inner, columns}).squeeze(0));
  } else {
    product = bmm(a_matrices, in_groups(b, {batch, inner, columns}));
  }
  Term result;
  Shape shape;
  for (const Labels* group : {&batch, &rows, &columns}) {
    for (const Label label : *group) {
      result.labels.push_back(label);
      shape.push_back(contains(a.labels, label) ? a.size(label) : b.size(label));
    }
  }
  result.tensor = product.reshape(shape);
  return result;
}

/// The parsed equation: the labels of each tensor and of the result, and the size of each label.
struct Equation {
  std::vector<Term> terms;
  Labels output;
  std::vector<int64_t> sizes;
};

Equation parse(const EinsumArguments& call, const std::vector<Tensor>& tensors) {
  std::string_view inputs = call.equation;
  const size_t arrow = inputs.find("->");
  inputs = inputs.substr(0, arrow);
  int64_t max_dims = 0, max_ellipsis = 0;
  for (const Tensor& tensor : tensors) max_dims = std::max(max_dims, tensor.dim());
  Equation result;
  result.sizes.resize(static_cast<size_t>(kEllipsis + max_dims), 1);
  std::vector<int> counts(result.sizes.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t comma = inputs.find(',');
    const std::string_view text = inputs.substr(0, comma);
    TANDEM_CHECK(ValueError, (comma == std::string_view::npos) == (i + 1 == tensors.size()),
                 call.error(str(tensors.size(), " tensors for another number of terms")));
    inputs.remove_prefix(comma == std::string_view::npos ? inputs.size() : comma + 1);
    const int64_t dims = tensors[i].dim(), num_labels = static_cast<int64_t>(parse_term(call, text, 0).size());
    const bool has_ellipsis = text.find("...") != std::string_view::npos;
    TANDEM_CHECK(ShapeError, has_ellipsis ? num_labels <= dims : num_labels == dims,
                 call.error(str(call.names[i], " has ", dims, " dimensions, but ", num_labels, " labels")));
    max_ellipsis = std::max(max_ellipsis, has_ellipsis ? dims - num_labels : 0);
    Term term = take_diagonals(call, i, {tensors[i], parse_term(call, text, dims - num_labels)});
    for (const Label label : term.labels) {
      int64_t& size = result.sizes[static_cast<size_t>(label)];
      const int64_t own = term.size(label);
      TANDEM_CHECK(
          ShapeError, own == size || own == 1 || size == 1,
          call.error(str(label_text(label), " has size ", own, " in ", call.names[i], ", before it ", size, ',')));
      if (own != 1) size = own;
    }
    for (const Label label : parse_term(call, text, 0)) ++counts[static_cast<size_t>(label)];
    result.terms.push_back(std::move(term));
  }
  if (arrow != std::string::npos) {
    result.output = parse_term(call, std::string_view(call.equation).substr(arrow + 2), max_ellipsis);
    for (const Label label : result.output) {
      TANDEM_CHECK(ValueError, std::count(result.output.begin(), result.output.end(), label) == 1,
                   call.error(str("the result has ", label_text(label), " twice")));
      TANDEM_CHECK(ValueError, label >= kEllipsis || counts[static_cast<size_t>(label)] > 0,
                   call.error(str("the result has ", label_text(label), ", which no tensor has,")));
    }
    return result;
  }
  for (int64_t d = max_ellipsis; d-- > 0;) result.output.push_back(kEllipsis + static_cast<Label>(d));
  for (Label label = 0; label < kEllipsis; ++label) {
    if (counts[static_cast<size_t>(label)] == 1) result.output.push_back(label);
  }
  return result;
}

/// The term without its dimensions of size 1, which broadcast.
Term drop_ones(const Term& term) {
  Term result;
  for (const Label label : term.labels) {
    if (term.size(label) != 1) result.labels.push_back(label);
  }
  result.tensor = squeeze(term.tensor);
  return result;
}

}  // namespace

Tensor einsum(const std::string& equation, const std::vector<Tensor>& tensors_argument) {
  std::vector<Tensor> tensors = tensors_argument;
  for (Tensor& tensor : tensors) cast_for(CastPolicy::kLowPrecision, {&tensor});
  TANDEM_CHECK(ValueError, !tensors.empty(), "einsum: the list of tensors is empty");
  const KernelContext context = check_same_device_list("einsum", tensors);
  const EinsumArguments call(equation, tensors);
  check_same_dtype("einsum", call.operands);
  TANDEM_CHECK(DTypeError, tensors[0].dtype() != kBool, call.error("bool tensors cannot be multiplied"));

  const Equation parsed = parse(call, tensors);
  Term product = drop_ones(parsed.terms[0]);
  for (size_t i = 1; i < parsed.terms.size(); ++i) {
    const auto kept = [&](Label label) {
      const auto is_in = [&](const Term& term) { return contains(term.labels, label); };
      return contains(parsed.output, label) ||
             std::any_of(parsed.terms.begin() + static_cast<ptrdiff_t>(i) + 1, parsed.terms.end(), is_in);
    };
    product = multiply(product, drop_ones(parsed.terms[i]), kept);
  }
  product = sum_over(product, [&](Label label) { return !contains(parsed.output, label); });
  Shape order, shape;
  for (const Label label : parsed.output) {
    shape.push_back(parsed.sizes[static_cast<size_t>(label)]);
    if (!contains(product.labels, label)) continue;
    order.push_back(std::find(product.labels.begin(), product.labels.end(), label) - product.labels.begin());
  }
  return product.tensor.permute(order).reshape(shape);
}

}}  // namespace tandem::v0
