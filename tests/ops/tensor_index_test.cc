// Indexing by lists, scatter, and the shape operations: values that cases cannot express, and error texts.
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;
using Indices = std::vector<int64_t>;

Tensor here(const Tensor& x) { return x.to(test_device()); }

/// The end of error texts that a device reports at its next synchronization.
std::string deferred_suffix() {
  return test_device().is_cpu() ? "" : str("; detected on ", test_device(), ", reported at this synchronization");
}

TEST(TensorIndex, IntegersSlicesAndNoneGiveViews) {
  const Tensor x = random_tensor({3, 4, 5}, 1);
  const Tensor part = x.index({Slice(1, None), None, -1, Ellipsis});
  EXPECT_EQ(part.shape(), (Shape{2, 1, 5}));
  EXPECT_EQ(part.storage(), x.storage());
  EXPECT_EQ(x.index({}).data_ptr(), x.data_ptr());
  EXPECT_EQ(x.index({Slice(None, None, 2)}).shape(), (Shape{2, 4, 5}));
  EXPECT_EQ(x.index({Slice(-2, -1), Ellipsis, 0}).shape(), (Shape{1, 4}));
  EXPECT_EQ(x.index({Ellipsis, None}).shape(), (Shape{3, 4, 5, 1}));
}

TEST(TensorIndex, MasksSelectInAscendingOrder) {
  const Tensor x = here(tensor({{1, 2, 3}, {4, 5, 6}}));
  EXPECT_EQ(x.index({here(tensor({{true, false, true}, {false, true, false}}))}).to_vector<int64_t>(),
            (Indices{1, 3, 5}));
  const Tensor columns = x.index({Slice(), here(tensor({false, true, true}))});
  EXPECT_EQ(columns.shape(), (Shape{2, 2}));
  EXPECT_EQ(columns.to_vector<int64_t>(), (Indices{2, 3, 5, 6}));
  // A mask without dimensions adds one; a mask and a tensor broadcast.
  EXPECT_EQ(x.index({here(scalar_tensor(true, {kBool}))}).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(x.index({here(scalar_tensor(false, {kBool}))}).shape(), (Shape{0, 2, 3}));
  EXPECT_EQ(x.index({here(tensor({true, true})), here(tensor({-1, 0}))}).to_vector<int64_t>(), (Indices{3, 4}));
}

TEST(TensorIndex, Int32IndicesAreAccepted) {
  const Tensor x = here(tensor({5, 6, 7})), at = here(tensor({2, 0}, {kInt32}));
  EXPECT_EQ(x.index({at}).to_vector<int64_t>(), (Indices{7, 5}));
  EXPECT_EQ(gather(x, 0, at).to_vector<int64_t>(), (Indices{7, 5}));
  EXPECT_EQ(index_select(x, 0, at).to_vector<int64_t>(), (Indices{7, 5}));
  EXPECT_EQ(scatter(x, 0, at, 1).to_vector<int64_t>(), (Indices{1, 6, 1}));
}

TEST(TensorIndex, EmptyIndicesGiveEmptyResults) {
  const Tensor x = here(zeros({3, 4})), none = here(zeros({0}, {kInt64}));
  EXPECT_EQ(x.index({none}).shape(), (Shape{0, 4}));
  EXPECT_EQ(x.index({Slice(), none}).shape(), (Shape{3, 0}));
  EXPECT_EQ(here(zeros({0, 4})).index({none}).shape(), (Shape{0, 4}));
  EXPECT_EQ(here(zeros({3, 0})).index({here(tensor({1, 1}))}).shape(), (Shape{2, 0}));
}

TEST(IndexPut, StoresTheLastValueOfRepeatedIndices) {
  for (int64_t n : {3, 3000}) {  // on GPUs without and with sorting
    Dense at = dense_zeros({n}), values = dense_zeros({n});
    for (int64_t i = 0; i < n; ++i) values[i] = static_cast<double>(i + 1);
    const Tensor index = here(make_tensor(at, kInt64)), source = here(make_tensor(values, kFloat32));
    const Tensor x = here(zeros({4}));
    x.index_put_({index}, source);
    EXPECT_EQ(x.to_vector<double>(), (Values{static_cast<double>(n), 0, 0, 0}));
    EXPECT_EQ(scatter(here(zeros({4})), 0, index, source).to_vector<double>(), x.to_vector<double>());
    EXPECT_EQ(index_copy(here(zeros({4})), 0, index, source).to_vector<double>(), x.to_vector<double>());
  }
}

TEST(IndexPut, WritesThroughSlicesAndPermutedDimensions) {
  const Tensor x = here(zeros({2, 3, 2}));
  x.index_put_({1, Slice(1, 3)}, here(tensor({{1.0, 2.0}, {3.0, 4.0}})));
  EXPECT_EQ(x.to_vector<double>(), (Values{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}));
  x.index_put_({here(tensor({0, 1})), Slice(), here(tensor({1, 0}))}, 7);
  EXPECT_EQ(x.to_vector<double>(), (Values{0, 7, 0, 7, 0, 7, 7, 0, 7, 2, 7, 4}));
  const Tensor transposed = here(zeros({3, 2})).t();
  transposed.index_put_({here(tensor({-1}))}, here(tensor({1, 2, 3})));  // converted to float32
  EXPECT_EQ(transposed.to_vector<double>(), (Values{0, 0, 0, 1, 2, 3}));
  x.index_put_({Ellipsis}, 1);
  x.index_put_({Slice(0, 1)}, x.slice(0, 1, 2), true);  // the value shares memory with x
  EXPECT_EQ(x.sum().item(), 18);
}

TEST(IndexPut, MaskWithOneValueFills) {
  const Tensor x = here(tensor({{1.0, NAN}, {3.0, 4.0}}));
  x.index_put_({here(tensor({{false, true}, {false, false}}))}, 0);
  EXPECT_EQ(x.to_vector<double>(), (Values{1, 0, 3, 4}));
  x.index_put_({here(tensor({false, true}))}, -1);
  EXPECT_EQ(x.to_vector<double>(), (Values{1, 0, -1, -1}));
  x.index_put_({Slice(), here(tensor({true, false}))}, here(tensor({7.0})));
  EXPECT_EQ(x.to_vector<double>(), (Values{7, 0, 7, -1}));
}

TEST(IndexPut, RecordsChangesInPlace) {
  const Tensor x = here(tensor({1.0, 2.0, 3.0})).requires_grad_(), v = here(tensor({5.0})).requires_grad_();
  const Tensor y = x * 1.0;
  y.index_put_({Slice(1, 2)}, v);
  (y * y).sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{2, 0, 6}));
  EXPECT_EQ(v.grad().to_vector<double>(), (Values{10}));
  EXPECT_EQ(error_text<StateError>([&] { x.index_put_({0}, 1); }).substr(0, 11), "index_put_:");
}

TEST(IndexPut, FailedCallChangesNothing) {
  const Tensor x = here(tensor({1.0, 2.0, 3.0})).requires_grad_(), y = x * 1.0;
  EXPECT_EQ(error_text<ShapeError>([&] { y.index_put_({Slice(0, 2)}, here(zeros({3}))); }).substr(0, 11),
            "index_put_:");
  EXPECT_EQ(y.version(), 0u);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{1, 1, 1}));
}

TEST(Scatter, IntegersAndBoolsAreReduced) {
  const Tensor at = here(tensor({0, 0, 1}));
  const auto reduced = [&](const Tensor& x, const Tensor& src, ScatterReduce reduce, bool include_self) {
    return scatter_reduce(here(x), 0, at, here(src), reduce, include_self).to_vector<int64_t>();
  };
  const Tensor x = tensor({10, 20, 30}), src = tensor({-3, 4, 5});
  EXPECT_EQ(scatter_add(here(x), 0, at, here(src)).to_vector<int64_t>(), (Indices{11, 25, 30}));
  EXPECT_EQ(reduced(x, src, ScatterReduce::kProd, true), (Indices{-120, 100, 30}));
  EXPECT_EQ(reduced(x, src, ScatterReduce::kAmax, false), (Indices{4, 5, 30}));
  EXPECT_EQ(reduced(x, src, ScatterReduce::kAmin, false), (Indices{-3, 5, 30}));
  EXPECT_EQ(reduced(x.to(kInt32), src.to(kInt32), ScatterReduce::kAmin, false), (Indices{-3, 5, 30}));
  const Tensor flags = tensor({false, true, false}), more = tensor({true, false, false});
  EXPECT_EQ(reduced(flags, more, ScatterReduce::kSum, true), (Indices{1, 1, 0}));
  EXPECT_EQ(reduced(flags, more, ScatterReduce::kProd, false), (Indices{0, 0, 0}));
  const Tensor bytes =
      scatter_add(here(tensor({250, 0}, {kUInt8})), 0, here(tensor({0})), here(tensor({10}, {kUInt8})));
  EXPECT_EQ(bytes.to_vector<int64_t>(), (Indices{4, 0}));  // wraps around
}

TEST(Scatter, ExtremaOfNaNAreNaN) {
  const Tensor at = here(tensor({0, 1, 1})), src = here(tensor({NAN, 2.0, 3.0})), x = here(tensor({1.0, NAN, 5.0}));
  for (const ScatterReduce reduce : {ScatterReduce::kAmax, ScatterReduce::kAmin}) {
    const Values values = scatter_reduce(x, 0, at, src, reduce).to_vector<double>();
    EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
    EXPECT_EQ(values[2], 5);
  }
}

TEST(Scatter, GradientsOfProductsWithZeros) {
  // Element 0 has one zero factor, element 1 two, element 2 a zero of its own.
  const Tensor x = here(tensor({2.0, 3.0, 0.0})).requires_grad_();
  const Tensor src = here(tensor({0.0, 5.0, 0.0, 0.0, 7.0})).requires_grad_();
  const Tensor at = here(tensor({0, 0, 1, 1, 2}));
  scatter_reduce(x, 0, at, src, ScatterReduce::kProd).backward(ones_like(x));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 0, 7}));
  EXPECT_EQ(src.grad().to_vector<double>(), (Values{10, 0, 0, 0, 0}));
}

TEST(Scatter, SecondGradientsOfProductsWithZeros) {
  const Tensor at = here(tensor({0, 0, 1, 1, 1, 2, 2, 2, 2}));
  const auto product = [&](const std::vector<Tensor>& in) {
    return scatter_reduce(in[0], 0, at, in[1], ScatterReduce::kProd);
  };
  const Tensor x = here(tensor({0.0, 3.0, 4.0}, {kFloat64})).requires_grad_();
  const Tensor src = here(tensor({0.0, 5.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 7.0}, {kFloat64})).requires_grad_();
  EXPECT_NO_THROW(autograd::gradcheck(product, {x, src}));
  EXPECT_NO_THROW(autograd::gradgradcheck(product, {x, src}));
}

TEST(Scatter, EqualExtremaShareTheGradient) {
  const Tensor x = here(tensor({3.0, 3.0})).requires_grad_(), src = here(tensor({3.0, 3.0, 1.0})).requires_grad_();
  const Tensor at = here(tensor({0, 0, 1}));
  scatter_reduce(x, 0, at, src, ScatterReduce::kAmax).backward(here(tensor({6.0, 1.0})));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{2, 1}));
  EXPECT_EQ(src.grad().to_vector<double>(), (Values{2, 2, 0}));
}

TEST(Scatter, HalfTypesAreSummedInFloat32) {
  const Tensor ones_of_half = here(ones({4096}, {kFloat16})), zero = here(zeros({4096}, {kInt64}));
  EXPECT_EQ(scatter_add(here(ones({1}, {kFloat16})), 0, zero, ones_of_half).item(), 4096);  // 4097 rounded
  EXPECT_EQ(index_add(here(zeros({1}, {kFloat16})), 0, zero, ones_of_half).item(), 4096);
  EXPECT_EQ(scatter_reduce(here(zeros({1}, {kFloat16})), 0, zero, ones_of_half, ScatterReduce::kMean, false).item(), 1);
}

TEST(Scatter, MatchesTheCpusBits) {
  for (const int64_t n : {100, 5000}) {
    for (const DType dtype : floating_dtypes()) {
      for (const ScatterReduce reduce : {ScatterReduce::kSum, ScatterReduce::kProd, ScatterReduce::kMean}) {
        const auto run = [&](Device device) {
          const Tensor at = make_tensor(random_dense({n, 2}, 3, 0, 7), kInt64).to(device);
          const Tensor src = random_tensor({n, 2}, 2, dtype, 0.9, 1.1).to(device);
          return scatter_reduce(random_tensor({7, 2}, 1, dtype).to(device), 0, at, src, reduce);
        };
        EXPECT_TRUE(primitives::bytes_equal(run(test_device()).cpu(), run(Device()))) << dtype;
      }
    }
  }
}

TEST(Scatter, InPlaceFormsChangeSelfAndRecord) {
  const Tensor x = here(tensor({1.0, 2.0, 3.0})).requires_grad_();
  const Tensor y = x * 1.0;
  y.scatter_reduce_(0, here(tensor({0, 0})), here(tensor({5.0, 4.0})), ScatterReduce::kProd);
  EXPECT_EQ(y.to_vector<double>(), (Values{20, 2, 3}));
  y.index_fill_(0, here(tensor({1})), 0);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{20, 0, 1}));
  const Tensor self = here(tensor({0, 1, 2}));
  self.scatter_(0, self, self.flip({0}));  // the index is self
  EXPECT_EQ(self.to_vector<int64_t>(), (Indices{2, 1, 0}));
  EXPECT_EQ(error_text<StateError>([&] { here(zeros({1})).expand({3}).scatter_(0, self, 1.0); }).substr(0, 9),
            "scatter_:");
}

TEST(Nonzero, IndicesHaveOneColumnPerDimension) {
  EXPECT_EQ(nonzero(here(tensor({0.0, NAN, -0.0, 2.0}))).to_vector<int64_t>(), (Indices{1, 3}));
  EXPECT_EQ(nonzero(here(scalar_tensor(2, {kInt64}))).shape(), (Shape{1, 0}));
  const std::vector<Tensor> columns = where(here(tensor({{0, 1}, {1, 1}})).to(kBool));
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[0].to_vector<int64_t>(), (Indices{0, 1, 1}));
  EXPECT_EQ(columns[1].to_vector<int64_t>(), (Indices{1, 0, 1}));
  const Tensor many = here(make_tensor(random_dense({5000}, 1, 0, 2), kBool));
  EXPECT_EQ(nonzero(many).size(0), many.sum().item<int64_t>());
}

TEST(TensorIndex, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3});
  EXPECT_ERROR(IndexError, x.index({0, 0, 0}),
               "index: the indices are for 3 dimensions, more than input has\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(IndexError, x.index({Ellipsis, Ellipsis}), "index: more than one Ellipsis");
  EXPECT_ERROR(DTypeError, x.index({tensor({1.0})}),
               "index: index tensors must be int32, int64 or bool\n"
               "  input       cpu  float32 [2, 3]\n"
               "  indices[0]  cpu  float32 [1]");
  EXPECT_ERROR(ShapeError, x.index({Slice(), tensor({true, false})}),
               "index: the mask does not have the sizes of dimensions 1 to 1 of the tensor that it indexes\n"
               "  tensor  cpu  float32 [2, 3]\n"
               "  mask    cpu  bool    [2]");
  EXPECT_ERROR(ShapeError, x.index({tensor({0, 1}), tensor({0, 1, 2})}),
               "index: shapes do not broadcast\n"
               "  indices       cpu  int64 [2]\n"
               "  next indices  cpu  int64 [3]");
  EXPECT_ERROR(ValueError, x.index({Slice(0, 2, -1)}),
               "slice: step is -1, must be at least 1\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, index_put(x, {0}, zeros({2})),
               "index_put: value does not broadcast to the selected elements, [3]\n"
               "  input  cpu  float32 [2, 3]\n"
               "  value  cpu  float32 [2]");
  EXPECT_ERROR(ValueError, index_put(tensor({1}, {kUInt8}), {0}, 300),
               "index_put: value 300 does not fit in uint8 (0 to 255); choose another dtype");
  const Tensor integers = tensor({1, 2});
  EXPECT_ERROR(DTypeError, scatter(integers, 0, tensor({0}), 0.5),
               "scatter: the value is a floating number, which input cannot represent\n"
               "  input  cpu  int64 [2]\n"
               "  index  cpu  int64 [1]");
  EXPECT_ERROR(ValueError, index_fill(integers.to(kInt8), 0, tensor({0}), 128),
               "index_fill: value 128 does not fit in int8 (-128 to 127); choose another dtype");
  EXPECT_ERROR(ShapeError, scatter_add(x, 1, zeros({2, 3}, {kInt64}), zeros({2, 2})),
               "scatter_add: index must have as many dimensions as input and src, no size larger than src's, and no "
               "size larger than input's except in dimension 1\n"
               "  input  cpu  float32 [2, 3]\n"
               "  index  cpu  int64   [2, 3]\n"
               "  src    cpu  float32 [2, 2]");
  EXPECT_ERROR(DTypeError, scatter_add(x, 1, zeros({2, 3}, {kInt64}), zeros({2, 3}, {kFloat64})),
               "scatter_add: operands have different dtypes\n"
               "  input  cpu  float32 [2, 3]\n"
               "  src    cpu  float64 [2, 3]  <- differs");
  EXPECT_ERROR(ShapeError, index_add(x, 1, tensor({0}), zeros({2, 2})),
               "index_add: index must have one dimension, and source the shape of input with the number of indices as "
               "the size of dimension 1\n"
               "  input   cpu  float32 [2, 3]\n"
               "  index   cpu  int64   [1]\n"
               "  source  cpu  float32 [2, 2]");
  EXPECT_ERROR(ShapeError, put(x, tensor({0, 1}), zeros({3})),
               "put: index and source must have the same number of elements\n"
               "  input   cpu  float32 [2, 3]\n"
               "  index   cpu  int64   [2]\n"
               "  source  cpu  float32 [3]");
  EXPECT_ERROR(ShapeError, masked_scatter(x, ones({3}, {kBool}), zeros({5})),
               "masked_scatter: mask has 6 true elements, but source has only 5 elements\n"
               "  input   cpu  float32 [2, 3]\n"
               "  mask    cpu  bool    [3]\n"
               "  source  cpu  float32 [5]");
}

TEST(TensorIndex, IndexOutOfRangeIsReported) {
  const Tensor x = here(zeros({5}));
  EXPECT_ERROR(IndexError, x.index({here(tensor({1, -6}))}).to_vector<float>(),
               "index: index -6 at position 1 is outside [-5, 5)" + deferred_suffix());
  EXPECT_ERROR(IndexError, scatter(x, 0, here(tensor({-1})), 1).to_vector<float>(),
               "scatter: index -1 at position 0 is outside [0, 5)" + deferred_suffix());
  EXPECT_ERROR(IndexError, here(zeros({0})).index({here(tensor({0}))}).to_vector<float>(),
               "index: index 0 at position 0 is outside [0, 0)");
}

TEST(Shapes, CatIgnoresEmptyVectors) {
  const Tensor none = here(zeros({0})).requires_grad_(), x = here(ones({2, 3})).requires_grad_();
  const Tensor y = cat({none, x, none, x}, 1);
  EXPECT_EQ(y.shape(), (Shape{2, 6}));
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), Values(6, 2));
  EXPECT_EQ(cat({none, none}).shape(), (Shape{0}));
  EXPECT_EQ(cat({none, here(zeros({2}, {kFloat64}))}).dtype(), kFloat64);
}

TEST(Shapes, DiagonalIsAView) {
  const Tensor x = here(zeros({2, 3}));
  x.diagonal(1).fill_(5);
  EXPECT_EQ(x.to_vector<double>(), (Values{0, 5, 0, 0, 0, 5}));
  EXPECT_EQ(x.t().diagonal(-1).data_ptr(), x.diagonal(1).data_ptr());
  EXPECT_EQ(x.diagonal(INT64_MAX).shape(), (Shape{0}));
  EXPECT_EQ(x.diagonal(INT64_MIN).shape(), (Shape{0}));
  EXPECT_NE(diag(x).data_ptr(), x.data_ptr());
}

TEST(Shapes, CopiesShareNoMemory) {
  const Tensor x = here(ones({2, 3}));
  for (const Tensor& copy : {x.flip({}), x.roll({0}, {0}), x.roll({0}), x.repeat({1, 1}), tile(x, {1}),
                             x.repeat_interleave(1, 0), x.flip({1})}) {
    EXPECT_NE(copy.storage(), x.storage());
    EXPECT_EQ(copy.numel(), 6);
  }
}

TEST(Shapes, UnfoldSharesMemory) {
  const Tensor x = here(arange(0, 7));
  const Tensor windows = x.unfold(0, 3, 2);
  EXPECT_EQ(windows.storage(), x.storage());
  EXPECT_EQ(windows.to_vector<int64_t>(), (Indices{0, 1, 2, 2, 3, 4, 4, 5, 6}));
  EXPECT_EQ(x.unfold(0, 0, 1).shape(), (Shape{8, 0}));
}

TEST(Shapes, TransposeOfAVectorIsTheVector) {
  EXPECT_EQ(zeros({3}).t().shape(), (Shape{3}));
  EXPECT_EQ(zeros({}).t().shape(), (Shape{}));
}

TEST(Shapes, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3});
  const std::string of_x = "\n  input  cpu  float32 [2, 3]";
  EXPECT_ERROR(IndexError, x.narrow(1, 2, 2), "narrow: start 2 and length 2 exceed dimension 1 of size 3" + of_x);
  EXPECT_ERROR(IndexError, unbind(zeros({})), "unbind: input has no dimensions\n  input  cpu  float32 []");
  EXPECT_ERROR(ValueError, tensor_split(x, 0), "tensor_split: sections is 0, must be at least 1" + of_x);
  EXPECT_ERROR(ShapeError, x.unflatten(1, {2, -1}),
               "unflatten: dimension 1 of size 3 does not split into [2, -1]" + of_x);
  EXPECT_ERROR(ShapeError, movedim(x, Shape{0, -2}, Shape{0, 1}), "movedim: dims [0, -2] repeat dimension 0" + of_x);
  EXPECT_ERROR(ShapeError, movedim(x, Shape{0}, Shape{0, 1}),
               "movedim: source [0] and destination [0, 1] differ in length" + of_x);
  EXPECT_ERROR(ShapeError, x.repeat({2}), "repeat: repeats [2] must have a number for each dimension" + of_x);
  EXPECT_ERROR(ValueError, tile(x, {-1}), "tile: repeats [1, -1] contain a negative number" + of_x);
  EXPECT_ERROR(ValueError, x.repeat_interleave(-1), "repeat_interleave: repeats is -1, expected at least 0" + of_x);
  EXPECT_ERROR(ShapeError, repeat_interleave(x, tensor({1, 2}), 1),
               "repeat_interleave: repeats must have one number, or one for each of 3 indices\n"
               "  input    cpu  float32 [2, 3]\n"
               "  repeats  cpu  int64   [2]");
  EXPECT_ERROR(ShapeError, x.flip({1, -1}), "flip: dims [1, -1] repeat dimension 1" + of_x);
  EXPECT_ERROR(ValueError, x.roll({1, 2}), "roll: shifts [1, 2] without dims must be one number" + of_x);
  EXPECT_ERROR(ValueError, x.roll({1}, {0, 1}), "roll: shifts [1] and dims [0, 1] differ in length" + of_x);
  EXPECT_ERROR(ValueError, x.unfold(1, 4, 1), "unfold: size is 4, must be in [0, 3], the size of dimension 1" + of_x);
  EXPECT_ERROR(ShapeError, x.diagonal(0, 1, -1), "diagonal: dim1 1 and dim2 -1 are the same dimension");
  EXPECT_ERROR(ShapeError, trace(zeros({2})), "trace: input must be a matrix\n  input  cpu  float32 [2]");
  EXPECT_ERROR(ShapeError, meshgrid({x}),
               "meshgrid: tensors must have at most one dimension\n  tensors[0]  cpu  float32 [2, 3]");
}

}}  // namespace tandem::testing
