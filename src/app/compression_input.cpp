#include "app/compression_input.hpp"

#include <algorithm>

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
  flags.value("compress", "gradients=FORMAT,weights=FORMAT",
              "gradients of data parallelism, or weights that ZeRO 3 gathers, travel encoded (docs/compression.md): " +
                  compression_format_names() + "; weft plan takes auto too (default: off)",
              group);
  flags.value("compress-min", "N", "parameters with fewer elements travel as they are (default: 65536)", group);
}

namespace {

// Reads "gradients=FORMAT", "weights=FORMAT", or both with a comma between them.
void read_formats(const std::string& text, EncodedTensors& choice) {
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view what = item.substr(0, equals);
    CompressionFormat* const format = what == "gradients" ? &choice.gradients.format
                                      : what == "weights" ? &choice.weights
                                                          : nullptr;
    const auto named =
        equals < item.size() ? parse_compression_format(item.substr(equals + 1)) : std::optional<CompressionFormat>();
    if (format == nullptr || !named || *named == CompressionFormat::none) {
      fail("--compress {}: must be auto, or gradients= or weights= (with a comma between both) and one of {}", text,
           compression_format_names());
    }
    if (*format != CompressionFormat::none) fail("--compress {}: says {} twice", text, what);
    *format = *named;
    if (comma == rest.size()) return;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace

EncodedTensors read_compression(const Flags& flags, Runtime runtime) {
  constexpr std::int64_t kMostElements = 1'000'000'000;
  EncodedTensors choice;
  const std::optional<std::string> text = flags.text("compress");
  const auto least = flags.integer("compress-min", 1, kMostElements);
  if (!text) {
    if (least) fail("--compress-min {}: needs --compress gradients=FORMAT", *least);
    return choice;
  }
  if (*text == kAuto) {
    if (!flags.declares(kMaxError)) fail("--compress auto: weft plan decides it; give the format that it names");
    if (least) fail("--compress-min {}: is chosen with --compress auto", *least);
    return choice;
  }
  read_formats(*text, choice);
  // kernels/cuda/encode.cu has the formats up to this one.
  constexpr auto kLastOfGpus = CompressionFormat::random_k;
  if (runtime == Runtime::cuda && std::max(choice.gradients.format, choice.weights) > kLastOfGpus) {
    fail("--compress {}: has no kernels for GPUs yet; weft run takes it on processors", *text);
  }
  choice.gradients.min_elements = least.value_or(choice.gradients.min_elements);
  return choice;
}

std::optional<double> error_of_chosen_compression(const Flags& flags) {
  const auto error = flags.number(kMaxError, 0, 10);
  if (flags.text("compress") == kAuto) return error.value_or(kUsualMaxError);
  if (error) fail("--max-error {}: needs --compress auto", *error);
  return std::nullopt;
}

}  // namespace weft
