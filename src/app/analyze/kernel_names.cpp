#include "app/analyze/kernel_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

namespace weft {
namespace {

constexpr std::string_view kEllipsis = "...";

bool in_identifier(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// "at::detail::Array<char*, 3>" becomes "Array<char*, 3>".
std::string without_namespaces(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "::") == 0 && !result.empty() && in_identifier(result.back())) {
      while (!result.empty() && in_identifier(result.back())) result.pop_back();
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string cut_in_the_middle(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  const std::size_t kept = width - kEllipsis.size(), head = kept / 2;
  return fmt::format("{}{}{}", text.substr(0, head), kEllipsis, text.substr(text.size() - (kept - head)));
}

// The beginning, and what follows from shortly before place `difference` on.
std::string cut_around(const std::string& text, std::size_t difference, std::size_t width) {
  const std::size_t head = width / 3;
  const std::size_t from = difference > head + kEllipsis.size() ? difference - 2 : 0;
  if (text.size() <= width || from <= head) return cut_in_the_middle(text, width);
  const std::size_t room = width - head - kEllipsis.size();
  const std::string rest = text.substr(from);
  const std::string shown =
      rest.size() <= room ? rest : rest.substr(0, room - kEllipsis.size()) + std::string(kEllipsis);
  return fmt::format("{}{}{}", text.substr(0, head), kEllipsis, shown);
}

std::size_t common_prefix(const std::vector<std::string>& texts) {
  std::size_t length = texts.front().size();
  for (const std::string& text : texts) {
    const auto [first, other] = std::mismatch(texts.front().begin(), texts.front().end(), text.begin(), text.end());
    length = std::min(length, static_cast<std::size_t>(first - texts.front().begin()));
  }
  return length;
}

// Places in `shown` by what stands there, only where several do.
std::vector<std::vector<std::size_t>> equal_ones(const std::vector<std::string>& shown) {
  std::map<std::string, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < shown.size(); ++i) places[shown[i]].push_back(i);
  std::vector<std::vector<std::size_t>> result;
  for (auto& [text, where] : places) {
    if (where.size() > 1) result.push_back(std::move(where));
  }
  return result;
}

}  // namespace

std::string plain_kernel_name(const std::string& name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  const std::string_view text = name;
  std::string plain;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
      continue;
    }
    if (text[i] == '(' && depth == 0 && !plain.empty()) break;  // a function's arguments: nothing after them names it
    if (text[i] == '<' || text[i] == '(') ++depth;
    if (text[i] == '>' || text[i] == ')') depth = std::max(depth - 1, 0);
    if (text[i] == '>' && plain.ends_with("> ")) plain.pop_back();  // "> >" as compilers once wrote it
    plain += text[i];
  }
  // Traces have names such as "Memcpy DtoD (Device -> Device)", where no type comes first.
  if (plain.starts_with("void ")) plain.erase(0, 5);
  while (!plain.empty() && plain.back() == ' ') plain.pop_back();
  return plain.empty() ? name : plain;
}

std::vector<std::string> column_names(const std::vector<std::string>& names, std::size_t width) {
  // One entry for each different name, so that a name that comes twice stays one name.
  std::map<std::string, std::size_t> index;
  std::vector<std::string> whole, shown;
  for (const std::string& name : names) {
    if (!index.try_emplace(name, whole.size()).second) continue;
    std::string text = plain_kernel_name(name);
    if (text.size() > width) text = without_namespaces(text);
    shown.push_back(cut_in_the_middle(text, width));
    whole.push_back(std::move(text));
  }
  for (const std::vector<std::size_t>& places : equal_ones(shown)) {
    std::vector<std::string> texts;
    for (const std::size_t i : places) texts.push_back(whole[i]);
    const std::size_t difference = common_prefix(texts);
    for (const std::size_t i : places) shown[i] = cut_around(whole[i], difference, width);
  }
  for (const std::vector<std::size_t>& places : equal_ones(shown)) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::string number = fmt::format(" #{}", i + 1);
      shown[places[i]] = cut_in_the_middle(shown[places[i]], width - number.size()) + number;
    }
  }
  std::vector<std::string> result;
  for (const std::string& name : names) result.push_back(shown[index.at(name)]);
  return result;
}

}  // namespace weft
