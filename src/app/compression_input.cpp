#include "app/compression_input.hpp"

#include "base/error.hpp"
#include "compress/compression_format.hpp"

namespace weft {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kMaxError = "max-error";
// Takes int8, and nothing coarser.
constexpr double kUsualMaxError = 0.01;

}  // namespace

void declare_compression_flags(Flags& flags, const char* group) {
  flags.value("compress", "gradients=FORMAT",
              "gradients of data parallelism travel encoded (docs/compression.md): " + compression_format_names() +
                  "; weft plan takes auto too (default: off)",
              group);
  flags.value("compress-min", "N", "parameters with fewer elements travel as they are (default: 65536)", group);
}

GradientCompression read_compression(const Flags& flags, Runtime runtime) {
  constexpr std::string_view kOf = "gradients=";
  constexpr std::int64_t kMostElements = 1'000'000'000;
  GradientCompression compression;
  const std::optional<std::string> text = flags.text("compress");
  const auto least = flags.integer("compress-min", 1, kMostElements);
  if (!text) {
    if (least) fail("--compress-min {}: needs --compress gradients=FORMAT", *least);
    return compression;
  }
  if (*text == kAuto) {
    if (!flags.declares(kMaxError)) fail("--compress auto: weft plan decides it; give the format that it names");
    if (least) fail("--compress-min {}: is chosen with --compress auto", *least);
    return compression;
  }
  const auto format =
      text->starts_with(kOf) ? parse_compression_format(std::string_view(*text).substr(kOf.size())) : std::nullopt;
  if (!format || *format == CompressionFormat::none) {
    fail("--compress {}: must be auto, or gradients= and one of {}", *text, compression_format_names());
  }
  if (runtime == Runtime::cuda) {
    fail("--compress {}: has no kernels for GPUs yet; weft run takes it on processors", *text);
  }
  compression.format = *format;
  compression.min_elements = least.value_or(compression.min_elements);
  return compression;
}

std::optional<double> error_of_chosen_compression(const Flags& flags) {
  const auto error = flags.number(kMaxError, 0, 10);
  if (flags.text("compress") == kAuto) return error.value_or(kUsualMaxError);
  if (error) fail("--max-error {}: needs --compress auto", *error);
  return std::nullopt;
}

}  // namespace weft
