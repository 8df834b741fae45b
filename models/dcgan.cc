#include <tandem/models/dcgan.h>

#include <tandem/base/error.h>
#include <tandem/base/math.h>
#include <tandem/nn/activation.h>
#include <tandem/nn/conv.h>
#include <tandem/nn/init.h>
#include <tandem/nn/norm.h>

namespace tandem { inline namespace v0 { namespace models {

namespace {

constexpr int64_t kMaxLevels = 16;

void check(const char* name, const DcganOptions& options) {
  TANDEM_CHECK(ValueError, options.levels >= 1 && options.levels <= kMaxLevels, name, ": levels is ", options.levels,
               ", expected 1 <= levels <= ", kMaxLevels);
}

void initialize(nn::Module& module) {
  if (const auto* conv = dynamic_cast<nn::ConvLayer*>(&module)) nn::init::normal_(conv->weight, 0, 0.02);
  if (const auto* norm = dynamic_cast<nn::BatchNorm2d*>(&module)) nn::init::normal_(norm->weight, 1, 0.02);
}

}  // namespace

DcganGenerator::DcganGenerator(const DcganOptions& options) : main(add<nn::Sequential>("main")) {
  check("DcganGenerator", options);
  int64_t channels = saturating_mul(options.width, int64_t{1} << (options.levels - 1));
  main.append<nn::ConvTranspose2d>(options.latent, channels, 4, {.bias = false});
  for (int64_t level = options.levels; level > 0; --level) {
    const int64_t out_channels = level > 1 ? channels / 2 : options.channels;
    main.append<nn::BatchNorm2d>(channels);
    main.append<nn::ReLU>();
    main.append<nn::ConvTranspose2d>(channels, out_channels, 4, {.stride = 2, .padding = 1, .bias = false});
    channels = out_channels;
  }
  main.append<nn::Tanh>();
  apply(initialize);
}

DcganDiscriminator::DcganDiscriminator(const DcganOptions& options) : main(add<nn::Sequential>("main")) {
  check("DcganDiscriminator", options);
  const nn::Conv2dOptions halving = {.stride = 2, .padding = 1, .bias = false};
  int64_t channels = options.width;
  main.append<nn::Conv2d>(options.channels, channels, 4, halving);
  main.append<nn::LeakyReLU>(0.2);
  for (int64_t level = 1; level < options.levels; ++level) {
    main.append<nn::Conv2d>(channels, 2 * channels, 4, halving);
    channels *= 2;
    main.append<nn::BatchNorm2d>(channels);
    main.append<nn::LeakyReLU>(0.2);
  }
  main.append<nn::Conv2d>(channels, 1, 4, {.bias = false});
  apply(initialize);
}

Dcgan::Dcgan(const DcganOptions& options)
    : generator(add<DcganGenerator>("generator", options)),
      discriminator(add<DcganDiscriminator>("discriminator", options)) {}

}}}  // namespace tandem::v0::models
