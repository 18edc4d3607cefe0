#include "io/megatron/pipeline_layout.hpp"

#include <cctype>
#include <string>

namespace weft {
namespace {

// Reads "*3" at a place, which it moves behind it. 1 where there is none, 0 where the number is wrong or above `limit`.
std::size_t read_repetitions(std::string_view text, std::size_t& at, std::size_t limit) {
  if (at >= text.size() || text[at] != '*') return 1;
  std::size_t times = 0, digits = 0;
  for (++at; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; ++at, ++digits) {
    times = times * 10 + static_cast<std::size_t>(text[at] - '0');
    if (times > limit) return 0;
  }
  return digits == 0 ? 0 : times;
}

// Writes repetitions out; nothing where the text is malformed or becomes longer than `limit`.
std::optional<std::string> expanded_layout(std::string_view text, std::size_t limit) {
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    std::string_view group = text.substr(at, 1);
    if (text[at] == '(') {
      const std::size_t end = text.find(')', at);
      if (end == std::string_view::npos) return std::nullopt;
      group = text.substr(at + 1, end - at - 1);
      at = end + 1;
    } else {
      ++at;
    }
    if (group.find_first_not_of("EtLm|, ") != std::string_view::npos) return std::nullopt;
    const std::size_t times = read_repetitions(text, at, limit);
    if (times == 0 || plain.size() + times * group.size() > limit) return std::nullopt;
    for (std::size_t i = 0; i < times; ++i) plain += group;
  }
  return plain;
}

}  // namespace

std::optional<PipelineLayout> parse_pipeline_layout(std::string_view text, std::size_t limit) {
  const std::optional<std::string> plain = expanded_layout(text, 4 * limit);
  if (!plain) return std::nullopt;
  PipelineLayout layout{.layers = {0}};
  for (const char c : *plain) {
    if (c == '|') layout.layers.push_back(0);
    if (c == 't') ++layout.layers.back();
    if (c == 'm') layout.predicts_more = true;
  }
  if (layout.layers.size() > limit) return std::nullopt;
  return layout;
}

}  // namespace weft
