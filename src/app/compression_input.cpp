#include "app/compression_input.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "compress/compression_format.hpp"

namespace weft {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kMaxError = "max-error";
// Takes int8, and nothing coarser.
constexpr double kUsualMaxError = 0.01;

}  // namespace

void declare_compression_flags(Flags& flags, const char* group) {
  flags.value("compress", "gradients=FORMAT[@node],weights=FORMAT",
              "gradients of data parallelism (with @node: between nodes only), or weights that ZeRO 3 gathers, travel "
              "encoded (docs/compression.md): " +
                  compression_format_names() + " (power-sgd:R has rank R); weft plan takes auto too (default: off)",
              group);
  flags.value("compress-min", "N", "parameters with fewer elements travel as they are (default: 65536)", group);
}

namespace {

// Takes "@node" and ":RANK" off what is said of gradients: "power-sgd:8", "int8@node".
void read_gradients(const std::string& text, std::string_view& named, GradientCompression& gradients) {
  constexpr std::string_view kBetweenNodes = "@node";
  if (named.ends_with(kBetweenNodes)) {
    named.remove_suffix(kBetweenNodes.size());
    gradients.between_nodes = true;
  }
  const std::size_t colon = named.find(':');
  if (colon == named.npos) return;
  if (named.substr(0, colon) != name_of(CompressionFormat::power_sgd)) {
    fail("--compress {}: only power-sgd has a rank, as in power-sgd:4", text);
  }
  gradients.rank = parse_integer(named.substr(colon + 1), "--compress " + text);
  named = named.substr(0, colon);
}

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
    std::string_view name = equals < item.size() ? item.substr(equals + 1) : std::string_view();
    if (what == "gradients") read_gradients(text, name, choice.gradients);
    const std::optional<CompressionFormat> named = parse_compression_format(name);
    if (format == nullptr || !named || *named == CompressionFormat::none) {
      fail(
          "--compress {}: must be auto, or gradients= or weights= (with a comma between both) and one of {}; behind "
          "the "
          "format of gradients may stand @node",
          text, compression_format_names());
    }
    if (*format != CompressionFormat::none) fail("--compress {}: says {} twice", text, what);
    *format = *named;
    if (comma == rest.size()) return;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace

EncodedTensors read_compression(const Flags& flags) {
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
