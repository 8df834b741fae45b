#include <tandem/tensor/shape.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

TEST(Shape, ShapesPrintAsLists) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{7}), "[7]");
  std::ostringstream out;
  out << Shape{64, 0, 256};
  EXPECT_EQ(out.str(), "[64, 0, 256]");
}

TEST(Shape, VectorsAndSpansConvertToShape) {
  const std::vector<int64_t> sizes = {3, 1, 7, 31, 32, 33, 2, 5};  // more than the inline capacity
  EXPECT_EQ(Shape(sizes), (Shape{3, 1, 7, 31, 32, 33, 2, 5}));
  EXPECT_EQ(Shape(std::span(sizes).first(2)), (Shape{3, 1}));
  EXPECT_EQ(Shape(sizes).dim(), 8);
}

TEST(Shape, NumElementsIsProductOfSizes) {
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({0}), 0);
  EXPECT_EQ(num_elements({7, 1, 33}), 231);
  EXPECT_EQ(num_elements({int64_t{1} << 59}), int64_t{1} << 59);
}

TEST(Shape, NegativeOrOverflowingSizesAreRejected) {
  const auto text = [](const Shape& shape) -> std::string {
    try {
      num_elements(shape);
    } catch (const ShapeError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(text({3, -1}), "shape [3, -1] has a negative size");
  EXPECT_EQ(text({int64_t{1} << 60}),
            "shape [1152921504606846976] has too many elements: its size in bytes overflows int64");
  EXPECT_EQ(text({INT64_MAX, 2}),
            "shape [9223372036854775807, 2] has too many elements: its size in bytes overflows int64");
  // A zero does not hide an overflow, because strides would overflow too.
  EXPECT_EQ(text({0, INT64_MAX, 3}),
            "shape [0, 9223372036854775807, 3] has too many elements: its size in bytes overflows int64");
}

TEST(Shape, RowMajorStridesFollowSizes) {
  EXPECT_EQ(row_major_strides({}), Shape{});
  EXPECT_EQ(row_major_strides({7}), Shape{1});
  EXPECT_EQ(row_major_strides({2, 3, 7}), (Shape{21, 7, 1}));
  EXPECT_EQ(row_major_strides({2, 0, 7}), (Shape{7, 7, 1}));
}

TEST(Shape, WrapDimCountsFromEndAndChecksRange) {
  EXPECT_EQ(wrap_dim("sum", 2, 3), 2);
  EXPECT_EQ(wrap_dim("sum", -1, 3), 2);
  EXPECT_EQ(wrap_dim("sum", -3, 3), 0);
  EXPECT_EQ(wrap_dim("sum", 0, 0), 0);
  EXPECT_EQ(wrap_dim("sum", -1, 0), 0);
  EXPECT_THROW(wrap_dim("sum", 1, 0), IndexError);
  EXPECT_THROW(wrap_dim("sum", -4, 3), IndexError);
  EXPECT_ERROR(IndexError, wrap_dim("sum", 3, 3),
               "sum: dimension 3 is out of range [-3, 3) of a tensor with 3 dimensions");
}

}}  // namespace tandem
