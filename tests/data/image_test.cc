#include <tandem/data/image.h>

#include <tandem/tensor/allocator.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/data/image_fixtures.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::Tensor;
using td::data::decode_image;
using td::data::encode_png;
using td::data::ImageReadMode;
using td::data::make_grid;
using td::testing::error_text;

namespace {

const std::map<std::string, Tensor>& recorded() {
  static const std::map<std::string, Tensor> tensors = td::testing::image_fixtures();
  return tensors;
}

std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data_ptr()), static_cast<size_t>(tensor.num_bytes())};
}

std::string file_of(const std::string& name) { return bytes_of(recorded().at(name + ".file")); }

std::string decode_error(const std::string& bytes) {
  return error_text<td::IoError>([&] { decode_image(bytes); });
}

/// [C, H, W] with pseudo-random values.
Tensor noise(const td::Shape& shape) {
  Tensor image = td::empty(shape, {td::kUInt8});
  for (int64_t i = 0; i < image.numel(); ++i) image.data<uint8_t>()[i] = static_cast<uint8_t>(i * i * 31 % 251);
  return image;
}

TEST(DecodeImage, PixelsAreEqualToPillow) {
  int count = 0;
  for (const auto& [key, file] : recorded()) {
    if (!key.ends_with(".file")) continue;
    const std::string name = key.substr(0, key.size() - 5);
    for (const auto& [mode, suffix] :
         {std::pair(ImageReadMode::kUnchanged, ".unchanged"), std::pair(ImageReadMode::kGray, ".gray"),
          std::pair(ImageReadMode::kRgb, ".rgb")}) {
      const Tensor expected = recorded().at(name + suffix);
      const Tensor image = decode_image(bytes_of(file), mode);
      EXPECT_EQ(image.shape(), expected.shape()) << name << suffix;
      EXPECT_EQ(image.to_vector<int>(), expected.to_vector<int>()) << name << suffix;
      ++count;
    }
  }
  EXPECT_EQ(count, 42);
}

TEST(DecodeImage, OtherDataIsRejected) {
  EXPECT_EQ(decode_error(""), "decode_image: the data is neither PNG nor JPEG: it is empty");
  EXPECT_EQ(decode_error("GIF89a\x01\x02\x03"),
            "decode_image: the data is neither PNG nor JPEG: it begins with 47 49 46 38 39 61 01 02");
}

TEST(DecodeImage, IncompleteDataIsRejected) {
  for (const char* name : {"png_rgb", "png_interlaced", "jpeg_420", "jpeg_422_progressive"}) {
    const std::string file = file_of(name);
    for (size_t size = 3; size + 2 < file.size(); size += 7) {
      if (name[0] == 'p' && size + 12 == file.size()) continue;  // lacks only the last chunk
      const std::string cut = file.substr(0, size);
      const bool has_signature = name[0] == 'j' || size >= 8;
      EXPECT_NE(decode_error(cut).find(has_signature ? ": cannot decode the" : "neither"), std::string::npos)
          << name << " " << size << ": " << decode_error(cut);
    }
  }
  EXPECT_EQ(decode_error(file_of("png_rgb").substr(0, 100)),
            "decode_image: cannot decode the PNG data: the data ends early");
  EXPECT_EQ(decode_error(file_of("jpeg_420").substr(0, 700)),
            "decode_image: cannot decode the JPEG data: Premature end of JPEG file");
}

TEST(DecodeImage, JpegDamageBeforeTheEndMarkerIsDecoded) {
  const std::string file = file_of("jpeg_420");
  const Tensor image = decode_image(file), cut = decode_image(file.substr(0, 700) + "\xff\xd9");
  EXPECT_EQ(cut.shape(), image.shape());
  EXPECT_NE(cut.to_vector<int>(), image.to_vector<int>());
}

TEST(DecodeImage, PngMayLackItsLastChunk) {
  for (const char* name : {"png_rgb", "png_interlaced"}) {
    const std::string file = file_of(name);
    EXPECT_EQ(decode_image(file.substr(0, file.size() - 12)).to_vector<int>(), decode_image(file).to_vector<int>());
  }
}

TEST(DecodeImage, DamagedPngIsRejected) {
  std::string file = file_of("png_rgb");
  const std::string text = std::string("\0\0\0\x3tEXta\0bxxxx", 15);  // with a wrong checksum
  EXPECT_EQ(decode_error(file.substr(0, 33) + text + file.substr(33)),
            "decode_image: cannot decode the PNG data: tEXt: CRC error");
  char& checksum = file[file.size() - 13];  // the chunk after it has 12 bytes
  checksum = static_cast<char>(checksum ^ 1);
  EXPECT_EQ(decode_error(file), "decode_image: cannot decode the PNG data: IDAT: CRC error");
}

TEST(DecodeImage, ImpossibleSizesAreRejectedBeforeMemoryIsAllocated) {
  std::string jpeg = file_of("jpeg_444");
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (const size_t at : {5, 6, 7, 8}) jpeg[frame + at] = '\x7f';  // height and width
  const std::string size = std::to_string(jpeg.size());
  EXPECT_EQ(decode_error(jpeg),
            "decode_image: the JPEG data has the size 32639x32639, expected at most 2^28 pixels and 2048 per byte (" +
                size + " bytes)");
  // 16000x16000 bits, with the checksum of that header.
  const std::string png(
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x3e\x80\0\0\x3e\x80\x01\0\0\0\0\x69\x05\xe2\x73\0\0\0\0IDAT\x35\xaf\x06\x1e",
      45);
  EXPECT_EQ(decode_error(png),
            "decode_image: the PNG data has the size 16000x16000, expected at most 2^28 pixels and 1032 bytes of "
            "pixels per byte (45 bytes)");
}

TEST(DecodeImage, MemoryOfTheDecoderIsCounted) {
  const std::string png = encode_png(td::zeros({3, 64, 64}, {td::kUInt8}));
  td::set_memory_limit({}, td::memory_stats({}).allocated + 20'000);  // one copy of the pixels
  EXPECT_THROW(decode_image(png), td::OutOfMemory);
  td::set_memory_limit({}, 0);
}

TEST(DecodeImage, JpegOfManyScansIsRejected) {
  const std::string file = file_of("jpeg_422_progressive");
  const size_t scan = file.rfind("\xff\xda");  // the last scan is repeated
  const std::string last = file.substr(scan, file.size() - 2 - scan);
  std::string many = file.substr(0, scan);
  for (int i = 0; i < 100; ++i) many += last;
  EXPECT_EQ(decode_error(many + "\xff\xd9"), "decode_image: cannot decode the JPEG data: more than 100 scans");
}

TEST(ReadImage, ErrorsNameTheFile) {
  const td::testing::TemporaryFolder folder;
  const auto error = [&](const std::string& path) {
    return folder.shortened(error_text<td::IoError>([&] { td::data::read_image(path); }));
  };
  const std::string path = folder.write("a.png", file_of("jpeg_gray"));  // the content decides, not the name
  EXPECT_EQ(td::data::read_image(path, ImageReadMode::kRgb).shape(), td::Shape({3, 23, 37}));
  EXPECT_EQ(error(folder.write("b.png", std::string("text"))),
            "read_image: 'DIR/b.png': the data is neither PNG nor JPEG: it begins with 74 65 78 74");
  EXPECT_NE(error(folder / "absent.png").find("read_image: cannot open 'DIR/absent.png'"), std::string::npos)
      << error(folder / "absent.png");
}

TEST(EncodePng, DecodedPixelsAreEqual) {
  for (const td::Shape& shape : {td::Shape{3, 5, 7}, td::Shape{1, 1, 1}, td::Shape{1, 300, 200}}) {
    const Tensor image = noise(shape);
    const Tensor decoded = decode_image(encode_png(image));
    EXPECT_EQ(decoded.shape(), shape);
    EXPECT_EQ(decoded.to_vector<int>(), image.to_vector<int>());
    const Tensor transposed = td::make_view(image.storage(), td::kUInt8, {shape[0], shape[2], shape[1]},
                                            {shape[1] * shape[2], 1, shape[2]}, 0);
    EXPECT_EQ(decode_image(encode_png(transposed)).to_vector<int>(), transposed.to_vector<int>());
  }
}

TEST(EncodePng, FloatsAreRoundedAndClamped) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor image = td::from_vector<float>({0, 1, 0.5f / 255, 0.49f / 255, -3, 7, nan, 0.25f}, {1, 2, 4});
  EXPECT_EQ(decode_image(encode_png(image)).to_vector<int>(), (std::vector<int>{0, 255, 1, 0, 0, 255, 0, 64}));
}

TEST(EncodeJpeg, DecodedPixelsMatchPillow) {
  const Tensor picture = recorded().at("picture");
  const std::string file = td::data::encode_jpeg(picture, 80);
  EXPECT_EQ(decode_image(file).to_vector<int>(), recorded().at("jpeg_420.rgb").to_vector<int>());
  EXPECT_LT(td::data::encode_jpeg(picture, 20).size(), file.size());
  const Tensor random = noise({1, 33, 50});  // incompressible
  EXPECT_EQ(decode_image(td::data::encode_jpeg(random, 100)).shape(), random.shape());
}

TEST(EncodeJpeg, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, td::data::encode_jpeg(noise({3, 2, 2}), 101),
               "encode_jpeg: quality is 101, expected 1 to 100");
  EXPECT_ERROR(td::IoError, td::data::encode_jpeg(noise({1, 1, 65536})),
               "encode_jpeg: libjpeg cannot encode the image of 65536x1 pixels: Maximum supported image dimension is "
               "65500 pixels");
}

TEST(EncodePng, InvalidImagesAreRejected) {
  EXPECT_ERROR(td::ShapeError, encode_png(td::zeros({2, 3, 3})),
               "encode_png: the image has shape [2, 3, 3], expected [C, H, W] with C = 1 or 3, and at least one pixel");
  EXPECT_ERROR(td::ShapeError, encode_png(td::zeros({3, 0, 3})),
               "encode_png: the image has shape [3, 0, 3], expected [C, H, W] with C = 1 or 3, and at least one pixel");
  EXPECT_ERROR(td::DTypeError, encode_png(td::zeros({3, 1, 1}, {td::kInt64})),
               "encode_png: the image is int64, expected uint8 or float32");
  EXPECT_ERROR(td::IoError, td::data::write_png("/absent/a.png", td::zeros({3, 1, 1})),
               "write_png: cannot write '/absent/a.png': No such file or directory");
}

TEST(MakeGrid, ImagesAreArrangedInRows) {
  const Tensor images = td::from_vector<float>({1, 2, 3, 4, 5}, {5, 1, 1, 1});
  const Tensor grid = make_grid(images, {.nrow = 3, .padding = 1, .pad_value = 9});
  ASSERT_EQ(grid.shape(), td::Shape({3, 5, 7}));
  const std::vector<float> plane = {9, 9, 9, 9, 9, 9, 9,  //
                                    9, 1, 9, 2, 9, 3, 9,  //
                                    9, 9, 9, 9, 9, 9, 9,  //
                                    9, 4, 9, 5, 9, 9, 9,  //
                                    9, 9, 9, 9, 9, 9, 9};
  std::vector<float> expected;
  for (int c = 0; c < 3; ++c) expected.insert(expected.end(), plane.begin(), plane.end());
  EXPECT_EQ(grid.to_vector<float>(), expected);
}

TEST(MakeGrid, ChannelsAndDTypeAreKept) {
  const Tensor images = noise({2, 3, 2, 2});
  const Tensor grid = make_grid(images, {.padding = 0});
  EXPECT_EQ(grid.dtype(), td::kUInt8);
  const auto in = images.to_vector<int>();
  EXPECT_EQ(grid.to_vector<int>(), (std::vector<int>{in[0], in[1], in[12], in[13], in[2],  in[3],  in[14], in[15],
                                                     in[4], in[5], in[16], in[17], in[6],  in[7],  in[18], in[19],
                                                     in[8], in[9], in[20], in[21], in[10], in[11], in[22], in[23]}));
}

TEST(MakeGrid, OneImageHasNoPadding) {
  for (const td::Shape& shape : {td::Shape{2, 3}, td::Shape{1, 2, 3}, td::Shape{1, 1, 2, 3}})
    EXPECT_EQ(make_grid(noise(shape)).shape(), td::Shape({3, 2, 3})) << shape;
}

TEST(MakeGrid, ValuesAreNormalized) {
  const Tensor images = td::from_vector<float>({-1, 0, 3, 1}, {1, 1, 1, 4});
  const auto row = [&](const td::data::MakeGridOptions& options) {
    auto values = make_grid(images, options).to_vector<float>();
    values.resize(4);
    return values;
  };
  EXPECT_EQ(row({.normalize = true}), (std::vector<float>{0, 0.25f, 1, 0.5f}));
  EXPECT_EQ(row({.normalize = true, .value_range = std::pair(-1.0, 1.0)}), (std::vector<float>{0, 0.5f, 1, 1}));
  EXPECT_EQ(images.to_vector<float>(), (std::vector<float>{-1, 0, 3, 1}));
}

TEST(MakeGrid, InvalidArgumentsAreRejected) {
  const Tensor images = td::zeros({2, 3, 1, 1});
  EXPECT_ERROR(td::ValueError, make_grid(images, {.nrow = 0}), "make_grid: nrow is 0, expected at least 1");
  EXPECT_ERROR(td::ValueError, make_grid(images, {.padding = -1}), "make_grid: padding is -1, expected at least 0");
  EXPECT_ERROR(td::ValueError, make_grid(images, {.value_range = std::pair(1.0, 1.0)}),
               "make_grid: value_range is (1, 1), expected first < second");
  EXPECT_ERROR(td::DTypeError, make_grid(noise({2, 3, 1, 1}), {.normalize = true}),
               "make_grid: normalize needs float32 images, got uint8");
  EXPECT_ERROR(td::ShapeError, make_grid(td::zeros({2, 2, 1, 1})),
               "make_grid: images have shape [2, 2, 1, 1], expected [N, C, H, W] with N >= 1 and C = 1 or 3");
}

}  // namespace
