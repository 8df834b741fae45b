#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

/// The sum over all values of all letters, in float64. `equation` has "->" and no "..."; sizes of 1 broadcast.
Dense naive_einsum(const std::string& equation, const std::vector<Dense>& inputs) {
  const size_t arrow = equation.find("->");
  std::vector<std::string> terms(1);
  for (const char c : equation.substr(0, arrow)) c == ',' ? void(terms.emplace_back()) : terms.back().push_back(c);
  const std::string output = equation.substr(arrow + 2);
  std::map<char, int64_t> sizes, index;
  for (size_t i = 0; i < terms.size(); ++i) {
    for (size_t d = 0; d < terms[i].size(); ++d) {
      int64_t& size = sizes.emplace(terms[i][d], 1).first->second;
      if (inputs[i].shape[d] != 1) size = inputs[i].shape[d];
      index[terms[i][d]] = 0;
    }
  }
  Shape shape;
  for (const char label : output) shape.push_back(sizes[label]);
  Dense out = dense_zeros(shape);
  if (std::any_of(sizes.begin(), sizes.end(), [](const auto& entry) { return entry.second == 0; })) return out;
  const auto position = [&](const std::string& labels, const Shape& of) {
    int64_t result = 0;
    for (size_t d = 0; d < labels.size(); ++d) result = result * of[d] + (of[d] == 1 ? 0 : index[labels[d]]);
    return result;
  };
  for (bool more = true; more;) {
    double product = 1;
    for (size_t i = 0; i < terms.size(); ++i) product *= inputs[i][position(terms[i], inputs[i].shape)];
    out[position(output, shape)] += product;
    more = false;
    for (auto& [label, value] : index) {
      more = ++value < sizes[label];
      if (more) break;
      value = 0;
    }
  }
  return out;
}

/// `explicit_equation` is the equation in letters and with "->", if it is another one.
OpCase einsum_case(const std::string& equation, const std::vector<Shape>& shapes, double terms,
                   const std::string& explicit_equation = "") {
  static const char* const names[] = {"tensors[0]", "tensors[1]", "tensors[2]"};
  OpCase op;
  op.name = "einsum";
  for (size_t i = 0; i < shapes.size(); ++i) op.inputs.push_back({names[i], shapes[i]});
  op.run = [equation](const Tensors& in) { return einsum(equation, in); };
  op.reference = [=](const std::vector<Dense>& in) {
    return naive_einsum(explicit_equation.empty() ? equation : explicit_equation, in);
  };
  op.terms = terms;
  return op;
}

}  // namespace

TANDEM_OP_CASES(einsum) {
  cases.op(
      "Tensor einsum(const std::string& equation, const std::vector<Tensor>& tensors)", CastPolicy::kLowPrecision,
      {einsum_case("ij,jk->ik", {{3, 7}, {7, 5}}, 7), einsum_case("bhqd,bhkd->bhqk", {{2, 3, 4, 5}, {2, 3, 6, 5}}, 5),
       einsum_case("i,j->ij", {{3}, {7}}, 1), einsum_case("ii->", {{5, 5}}, 5), einsum_case("ij->ji", {{3, 7}}, 1)});
  const OpCase more[] = {
      einsum_case("i,i->", {{7}, {7}}, 7),
      einsum_case("i,i", {{7}, {7}}, 7, "i,i->"),
      einsum_case("ba, cb", {{3, 7}, {5, 3}}, 3, "ba,cb->ac"),
      einsum_case("bA,ca->Aab", {{2, 3}, {5, 4}}, 5),  // sums of single tensors
      einsum_case("bi,bi->bi", {{3, 7}, {3, 7}}, 1),
      einsum_case("bi,bj->bij", {{3, 7}, {3, 2}}, 1),
      einsum_case("iij->ij", {{3, 3, 7}}, 1),
      einsum_case("iij,jji->ij", {{3, 3, 5}, {5, 5, 3}}, 1),
      einsum_case("iii->", {{3, 3, 3}}, 3),
      einsum_case("ij,j->i", {{3, 1}, {7}}, 7),  // broadcast
      einsum_case("bij,bjk->bik", {{1, 3, 4}, {5, 4, 2}}, 4),
      einsum_case("ij->ij", {{1, 3}}, 1),
      einsum_case("...ij,...jk->...ik", {{2, 1, 3, 4}, {5, 4, 2}}, 4, "abij,bjk->abik"),
      einsum_case("i...,ij", {{3, 2}, {3, 4}}, 3, "ib,ij->bj"),
      einsum_case("b...,b->b", {{3, 2, 4}, {3}}, 8, "bxy,b->b"),
      einsum_case("i...i->...", {{3, 2, 3}}, 3, "ixi->x"),
      einsum_case("ij,jk,kl->il", {{3, 4}, {4, 5}, {5, 2}}, 20),
      einsum_case("bn,anm,bm->ba", {{2, 3}, {4, 3, 5}, {2, 5}}, 15),
      einsum_case(",i->i", {{}, {7}}, 1),
      einsum_case("ij,jk->ik", {{3, 0}, {0, 5}}, 1),
  };
  for (const OpCase& op : more) cases.add(op, kValues | kGradients);
  cases.add(einsum_case("bij,bkj->bik", {{3, 65, 31}, {3, 70, 31}}, 31), kThreads);

  cases.benchmark("einsum", {{8, 256, 12, 64}, {8, 256, 12, 64}},
                  [](const TensorList& in) {
                    return einsum("bqhd,bkhd->bhqk", {in[0], in[1]});
                  },
                  {.flops = 2.0 * 8 * 12 * 256 * 256 * 64});
}

}  // namespace tandem::testing
