#include "app/compression_input.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "compress/compression_format.hpp"

namespace weft {
namespace {

constexpr const char* kMaxError = "max-error";
// Takes int8, and nothing coarser.
constexpr double kUsualMaxError = 0.01;

// Words that leave formats to predictions.
struct BudgetWord {
  std::string_view word;
  CompressionBudget budget;
};
// Every format rounds, so `lossless` allows none of them.
constexpr std::string_view kLossless = "lossless";
constexpr BudgetWord kBudgetWords[] = {{"auto", CompressionBudget::gradients},
                                       {kLossless, CompressionBudget::all},
                                       {"gradients", CompressionBudget::gradients},
                                       {"weights", CompressionBudget::weights},
                                       {"all", CompressionBudget::all}};

const BudgetWord* find_budget(std::string_view text) {
  const auto* const found = std::ranges::find(kBudgetWords, text, &BudgetWord::word);
  return found == std::end(kBudgetWords) ? nullptr : found;
}

}  // namespace

void declare_compression_flags(Flags& flags, const char* group) {
  flags.value("compress", "gradients=FORMAT[@node],weights=FORMAT",
              "gradients of data parallelism (with @node: between nodes only), or weights that ZeRO gathers, travel "
              "encoded (docs/compression.md): " +
                  compression_format_names() +
                  " (power-sgd:R has rank R); weft plan decides by prediction with auto or gradients, weights, all, "
                  "lossless alone (default: off)",
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
          "--compress {}: must be auto, gradients, weights, all or lossless, or gradients= or weights= (with a comma "
          "between both) and one of {}; behind the format of gradients may stand @node",
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
  if (find_budget(*text) != nullptr) {
    if (!flags.declares(kMaxError)) fail("--compress {}: weft plan decides it; give the format that it names", *text);
    if (least) fail("--compress-min {}: is chosen with --compress {}", *least, *text);
    return choice;
  }
  read_formats(*text, choice);
  choice.gradients.min_elements = least.value_or(choice.gradients.min_elements);
  return choice;
}

std::optional<CompressionWish> read_compression_wish(const Flags& flags) {
  const auto error = flags.number(kMaxError, 0, 10);
  const std::optional<std::string> text = flags.text("compress");
  const BudgetWord* const word = text ? find_budget(*text) : nullptr;
  if (word == nullptr) {
    if (error) fail("--max-error {}: needs --compress auto, gradients, weights or all", *error);
    return std::nullopt;
  }
  if (word->word == kLossless && error) fail("--max-error {}: is 0 with --compress lossless", *error);
  return CompressionWish{*text, word->budget, word->word == kLossless ? 0 : error.value_or(kUsualMaxError)};
}

}  // namespace weft
