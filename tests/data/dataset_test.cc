#include <tandem/data/dataset.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;

namespace {

/// The text of the E that f throws; fails if f throws another type or nothing.
template <class E, class F>
std::string text_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    EXPECT_EQ(typeid(error).name(), typeid(E).name()) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

/// Item i has the image [i, i + 0.5] and the label i * i. Item 5 is `fifth`, if it is set.
class Squares : public td::data::Dataset {
 public:
  int64_t size() const override { return 10; }
  td::data::Example get(int64_t index) const override {
    if (index == 5 && fifth) return fifth();
    return {td::from_vector<float>({float(index), float(index) + 0.5f}, {2}),
            td::scalar_tensor(index * index, {td::kInt64})};
  }
  std::function<td::data::Example()> fifth;
};

td::data::Batch batch_with_fifth(std::function<td::data::Example()> fifth) {
  Squares squares;
  squares.fifth = std::move(fifth);
  return squares.get_batch(std::vector<int64_t>{1, 5});
}

TEST(Dataset, GetBatchStacksItemsInRequestedOrder) {
  const auto batch = Squares().get_batch(std::vector<int64_t>{7, 0, 3});
  EXPECT_EQ(batch.size, 3);
  EXPECT_EQ(batch.input.shape(), td::Shape({3, 2}));
  EXPECT_EQ(batch.target.shape(), td::Shape({3}));
  EXPECT_EQ(batch.target.dtype(), td::kInt64);
  EXPECT_EQ(batch.input.to_vector<float>(), (std::vector<float>{7, 7.5, 0, 0.5, 3, 3.5}));
  EXPECT_EQ(batch.target.to_vector<int64_t>(), (std::vector<int64_t>{49, 0, 9}));
}

TEST(Dataset, GetBatchStacksStridedTensors) {
  // A column of a [2, 3] matrix.
  const td::Tensor matrix = td::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const td::Tensor column = td::make_view(matrix.storage(), td::kFloat32, {2}, {3}, 1);
  const auto batch = batch_with_fifth([&] { return td::data::Example{column, td::scalar_tensor(-1, {td::kInt64})}; });
  EXPECT_EQ(batch.input.to_vector<float>(), (std::vector<float>{1, 1.5, 2, 5}));
  EXPECT_EQ(batch.target.to_vector<int64_t>(), (std::vector<int64_t>{1, -1}));
}

TEST(Dataset, GetBatchStacksEmptyTensors) {
  Squares squares;
  squares.fifth = [] { return td::data::Example{td::empty({0, 3}), td::empty({}, {td::kBool})}; };
  const auto batch = squares.get_batch(std::vector<int64_t>{5, 5});
  EXPECT_EQ(batch.input.shape(), td::Shape({2, 0, 3}));
}

TEST(Dataset, EmptyBatchIsRejected) {
  EXPECT_EQ(text_of<td::ValueError>([] { Squares().get_batch({}); }),
            "Dataset: empty batch, expected at least one index");
}

TEST(Dataset, MismatchedItemIsNamedInTheError) {
  const td::Tensor label = td::scalar_tensor(1, {td::kInt64});
  EXPECT_EQ(text_of<td::ShapeError>([&] {
              batch_with_fifth([&] { return td::data::Example{td::zeros({3}), label}; });
            }),
            "Dataset: the input has shape [3], expected [2] as in the items before\n  in item 5 of the dataset");
  EXPECT_EQ(text_of<td::DTypeError>([&] {
              batch_with_fifth([&] { return td::data::Example{td::zeros({2}, {td::kFloat64}), label}; });
            }),
            "Dataset: the input is float64, expected float32 as in the items before\n  in item 5 of the dataset");
  EXPECT_EQ(text_of<td::StateError>([&] { batch_with_fifth([&] {
                                            return td::data::Example{td::zeros({2}), {}};
                                          }); }),
            "Dataset: the target is undefined\n  in item 5 of the dataset");
}

template <class E>
void expect_kind_kept() {
  const auto text = text_of<E>([] { batch_with_fifth([]() -> td::data::Example { throw E("cause"); }); });
  EXPECT_EQ(text, "cause\n  in item 5 of the dataset");
}

TEST(Dataset, ExceptionTypeIsPreserved) {
  expect_kind_kept<td::Error>();
  expect_kind_kept<td::ShapeError>();
  expect_kind_kept<td::DTypeError>();
  expect_kind_kept<td::DeviceError>();
  expect_kind_kept<td::IndexError>();
  expect_kind_kept<td::ValueError>();
  expect_kind_kept<td::StateError>();
  expect_kind_kept<td::OutOfMemory>();
  expect_kind_kept<td::IoError>();
  expect_kind_kept<td::CommError>();
  expect_kind_kept<std::runtime_error>();
  expect_kind_kept<std::range_error>();
  expect_kind_kept<std::overflow_error>();
  expect_kind_kept<std::logic_error>();
  expect_kind_kept<std::invalid_argument>();
  expect_kind_kept<std::domain_error>();
  expect_kind_kept<std::out_of_range>();
}

TEST(Dataset, ExceptionsWithoutTextPassUnchanged) {
  struct Own : std::exception {};
  EXPECT_THROW(batch_with_fifth([]() -> td::data::Example { throw Own(); }), Own);
  EXPECT_THROW(batch_with_fifth([]() -> td::data::Example { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_THROW(batch_with_fifth([]() -> td::data::Example { throw 7; }), int);
  EXPECT_THROW(batch_with_fifth([]() -> td::data::Example { throw td::BackendError("f", 3); }), td::BackendError);
}

TEST(Dataset, CommErrorKeepsRankPeerAndSeq) {
  try {
    batch_with_fifth([]() -> td::data::Example { throw td::CommError("lost", 2, 3, 99); });
    FAIL();
  } catch (const td::CommError& error) {
    EXPECT_EQ(error.rank(), 2);
    EXPECT_EQ(error.peer(), 3);
    EXPECT_EQ(error.seq(), 99);
  }
}

}  // namespace
