#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Shape;
using td::Tensor;

namespace {

using Numbers = std::vector<int64_t>;

Tensor integers(const Numbers& numbers) {
  return td::from_vector<int64_t>(numbers, {static_cast<int64_t>(numbers.size())});
}
Tensor column(const std::vector<float>& values) {
  return td::from_vector<float>(values, {static_cast<int64_t>(values.size()), 1});
}

void expect_near(const Tensor& actual, const Tensor& expected, double tolerance = 1e-6) {
  ASSERT_EQ(actual.shape(), expected.shape());
  const auto a = actual.to_vector<double>(), e = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], e[i], tolerance * (1 + std::abs(e[i]))) << i;
}

/// [T = 3, N = 4, 1]: element 10 t + n.
Tensor numbered() { return td::from_vector<float>({0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}, {3, 4, 1}); }

TEST(PackPaddedSequence, StepsOfAllSequencesFollowEachOther) {
  const nn::PackedSequence packed = nn::pack_padded_sequence(numbered(), integers({3, 2, 2, 1}));
  EXPECT_EQ(packed.data.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 10, 11, 12, 20}));
  EXPECT_EQ(packed.data.shape(), Shape({8, 1}));
  EXPECT_EQ(packed.batch_sizes.to_vector<int64_t>(), (Numbers{4, 3, 1}));
  EXPECT_FALSE(packed.sorted_indices.defined());
  EXPECT_FALSE(packed.unsorted_indices.defined());
}

TEST(PackPaddedSequence, UnsortedSequencesAreSortedStably) {
  for (const bool batch_first : {false, true}) {
    const Tensor input = batch_first ? numbered().transpose(0, 1) : numbered();
    const nn::PackedSequence packed =
        nn::pack_padded_sequence(input, integers({1, 2, 3, 2}), {.batch_first = batch_first, .enforce_sorted = false});
    EXPECT_EQ(packed.data.to_vector<float>(), (std::vector<float>{2, 1, 3, 0, 12, 11, 13, 22}));
    EXPECT_EQ(packed.batch_sizes.to_vector<int64_t>(), (Numbers{4, 3, 1}));
    EXPECT_EQ(packed.sorted_indices.to_vector<int64_t>(), (Numbers{2, 1, 3, 0}));
    EXPECT_EQ(packed.unsorted_indices.to_vector<int64_t>(), (Numbers{3, 1, 0, 2}));
  }
}

TEST(PadPackedSequence, RestoresOrderAndPads) {
  const Numbers lengths = {1, 2, 3, 2};
  const nn::PackedSequence packed = nn::pack_padded_sequence(numbered(), integers(lengths), {.enforce_sorted = false});
  const auto [output, restored] = nn::pad_packed_sequence(packed, {.padding_value = -1});
  EXPECT_EQ(output.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, -1, 11, 12, 13, -1, -1, 22, -1}));
  EXPECT_EQ(output.shape(), Shape({3, 4, 1}));
  EXPECT_EQ(restored.to_vector<int64_t>(), lengths);
  const auto longer = nn::pad_packed_sequence(packed, {.batch_first = true, .total_length = 4});
  EXPECT_EQ(longer.output.shape(), Shape({4, 4, 1}));
  EXPECT_EQ(longer.output.to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 1, 11, 0, 0, 2, 12, 22, 0, 3, 13, 0, 0}));
}

TEST(PackPaddedSequence, IsDifferentiable) {
  const Tensor x = td::randn({3, 4, 2}, {td::kFloat64}).requires_grad_();
  const auto round_trip = [](const std::vector<Tensor>& in) {
    const nn::PackedSequence packed =
        nn::pack_padded_sequence(in[0], integers({1, 3, 2, 3}), {.enforce_sorted = false});
    return nn::pad_packed_sequence({packed.data * packed.data, packed.batch_sizes, packed.sorted_indices, {}}).output;
  };
  EXPECT_NO_THROW(td::gradcheck(round_trip, {x}));
  EXPECT_NO_THROW(td::gradgradcheck(round_trip, {x}));
}

TEST(PadSequence, PadsAtTheEnd) {
  const std::vector<Tensor> sequences = {column({1}), column({2, 3, 4}), column({5, 6})};
  const Tensor padded = nn::pad_sequence(sequences);
  EXPECT_EQ(padded.shape(), Shape({3, 3, 1}));
  EXPECT_EQ(padded.to_vector<float>(), (std::vector<float>{1, 2, 5, 0, 3, 6, 0, 4, 0}));
  EXPECT_EQ(nn::pad_sequence(sequences, {.batch_first = true, .padding_value = 9}).to_vector<float>(),
            (std::vector<float>{1, 9, 9, 2, 3, 4, 5, 6, 9}));
  const nn::PackedSequence packed = nn::pack_sequence(sequences, /*enforce_sorted=*/false);
  EXPECT_EQ(packed.data.to_vector<float>(), (std::vector<float>{2, 5, 1, 3, 6, 4}));
  EXPECT_EQ(packed.sorted_indices.to_vector<int64_t>(), (Numbers{1, 2, 0}));
}

TEST(PackPaddedSequence, InvalidArgumentsAreErrors) {
  const Tensor x = td::ones({3, 2, 1});
  EXPECT_ERROR(
      td::ShapeError, nn::pack_padded_sequence(td::ones({3}), integers({1})),
      "pack_padded_sequence: input is float32 [3] on cpu, expected [T, N, ...], or [N, T, ...] with batch_first");
  EXPECT_ERROR(td::ShapeError, nn::pack_padded_sequence(x, integers({1})),
               "pack_padded_sequence: lengths is int64 [1] on cpu, expected one for each of 2 sequences");
  EXPECT_ERROR(td::DTypeError, nn::pack_padded_sequence(x, td::ones({2})),
               "pack_padded_sequence: lengths is float32 [2] on cpu, expected int64 on the CPU");
  EXPECT_ERROR(td::ValueError, nn::pack_padded_sequence(x, integers({3, 0})),
               "pack_padded_sequence: lengths[1] is 0, expected 1 to 3");
  EXPECT_ERROR(td::ValueError, nn::pack_padded_sequence(x, integers({1, 2})),
               "pack_padded_sequence: lengths[1] is 2, more than lengths[0], which is 1; sort the sequences, or pass "
               ".enforce_sorted = false");
  const nn::PackedSequence packed = nn::pack_padded_sequence(x, integers({3, 1}));
  EXPECT_ERROR(td::ValueError, nn::pad_packed_sequence(packed, {.total_length = 2}),
               "pad_packed_sequence: total_length is 2, expected at least the longest length, 3");
  const auto text = [](int64_t rows, const Numbers& batch_sizes, const Tensor& sorted = {}) {
    try {
      nn::pad_packed_sequence({td::ones({rows, 1}), integers(batch_sizes), sorted, {}});
    } catch (const td::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string op = "pad_packed_sequence: ";
  EXPECT_EQ(text(3, {2, 1}, integers({1, 0})), "");
  EXPECT_EQ(
      text(3, {}),
      op + "data is float32 [3, 1] on cpu and batch_sizes int64 [0] on cpu, expected [rows, ...] and [T] with T >= 1");
  for (const Numbers& sizes : {Numbers{1, 2}, Numbers{3, 0}}) {
    EXPECT_EQ(text(3, sizes),
              op + td::str("batch_sizes[1] is ", sizes[1], ", expected numbers of at least 1 that do not increase"));
  }
  EXPECT_EQ(text(3, {INT64_MAX, INT64_MAX}),
            op + "batch_sizes add up to 9223372036854775807, but data is float32 [3, 1] on cpu");
  for (const Numbers& order : {Numbers{0, 2}, Numbers{0, -1}, Numbers{1, 1}, Numbers{0}}) {
    EXPECT_EQ(text(3, {2, 1}, integers(order)),
              op + td::str("sorted_indices is int64 [", order.size(), "] on cpu, expected each number below 2 once"));
  }
  EXPECT_ERROR(td::ValueError, nn::pad_sequence({}), "pad_sequence: sequences is empty");
}

TEST(RecurrentLayers, PackedInputEqualsSingleSequences) {
  const nn::LSTM lstm(3, 4, {.num_layers = 2, .bidirectional = true});
  const Numbers lengths = {2, 5, 1, 5, 3};
  const Tensor x = td::randn({5, 5, 3}), h_0 = td::randn({4, 5, 4}), c_0 = td::randn({4, 5, 4});
  const auto [output, h_n, c_n] =
      lstm(nn::pack_padded_sequence(x, integers(lengths), {.enforce_sorted = false}), h_0, c_0);
  const auto [padded, restored] = nn::pad_packed_sequence(output);
  EXPECT_EQ(restored.to_vector<int64_t>(), lengths);
  for (int64_t n = 0; n < 5; ++n) {
    SCOPED_TRACE(n);
    const int64_t length = lengths[static_cast<size_t>(n)];
    const auto alone = lstm(x.slice(0, 0, length).select(1, n), h_0.select(1, n), c_0.select(1, n));
    expect_near(padded.slice(0, 0, length).select(1, n), alone.output);
    EXPECT_EQ(padded.slice(0, length, 5).select(1, n).abs().sum().item(), 0);
    expect_near(h_n.select(1, n), alone.h_n);
    expect_near(c_n.select(1, n), alone.c_n);
  }
  EXPECT_ERROR(td::ShapeError, lstm(nn::pack_padded_sequence(td::ones({2, 1, 4}), integers({2}))),
               "LSTM: packed data is float32 [2, 4] on cpu, expected [rows, 3]\n  in LSTM");
}

}  // namespace
