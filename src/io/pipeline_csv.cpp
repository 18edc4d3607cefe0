#include "io/pipeline_csv.hpp"

#include <cctype>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxStages = 65'536, kMaxMicroBatches = 1'000'000;

std::string_view trimmed(std::string_view text) {
  const auto is_frame = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '"'; };
  while (!text.empty() && is_frame(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_frame(text.back())) text.remove_suffix(1);
  return text;
}

class CellReader {
 public:
  CellReader(std::string_view cell, std::string where) : cell_(cell), where_(std::move(where)) {}

  void read(std::vector<PipelineAction>& actions) const {
    if (!cell_.starts_with("(")) {
      actions.push_back(read_action(cell_));
      return;
    }
    const std::size_t end = cell_.find(')');
    if (end == std::string_view::npos || cell_.substr(end + 1) != "OVERLAP_F_B") reject();
    for (const std::string& part : split(cell_.substr(1, end - 1), ';')) actions.push_back(read_action(trimmed(part)));
  }

 private:
  [[noreturn]] void reject() const {
    fail("{}: '{}' is no action such as 2F0, 1UNSHARD, 3SEND_F1 or (0F1;1B0)OVERLAP_F_B", where_, cell_);
  }

  std::int64_t number(std::string_view digits, std::int64_t limit) const {
    std::int64_t value = 0;
    for (const char c : digits) {
      value = value * 10 + (c - '0');
      if (value >= limit) fail("{}: '{}': {} is not in 0..{}", where_, cell_, digits, limit - 1);
    }
    return value;
  }

  PipelineAction read_action(std::string_view text) const {
    const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    std::size_t begin = 0, end = text.size();
    while (begin < text.size() && is_digit(text[begin])) ++begin;
    while (end > begin && is_digit(text[end - 1])) --end;
    const auto kind = action_with_letters(text.substr(begin, end - begin));
    if (begin == 0 || !kind) reject();
    const bool of_micro_batch = is_compute(*kind) || is_message(*kind);
    if (of_micro_batch != (end < text.size())) reject();
    return {*kind, number(text.substr(0, begin), kMaxStages),
            of_micro_batch ? number(text.substr(end), kMaxMicroBatches) : -1};
  }

  std::string_view cell_;
  std::string where_;
};

}  // namespace

PipelineActions read_pipeline_csv(const std::string& text, const std::string& file_name) {
  PipelineActions actions;
  for (const std::string& line : split(text, '\n')) {
    if (trimmed(line).empty()) continue;
    std::vector<PipelineAction>& rank = actions.emplace_back();
    std::size_t column = 0;
    for (const std::string& cell : split(line, ',')) {
      ++column;
      const std::string_view action = trimmed(cell);
      if (action.empty()) continue;
      CellReader(action, fmt::format("{}: row {}, column {}", file_name, actions.size(), column)).read(rank);
    }
  }
  if (actions.empty()) fail("{}: has no row; a schedule has one for each pipeline rank", file_name);
  return actions;
}

std::string write_pipeline_csv(const PipelineActions& actions) {
  std::string text;
  for (const std::vector<PipelineAction>& rank : actions) {
    for (std::size_t i = 0; i < rank.size(); ++i) {
      if (i > 0) text += ',';
      text += name_of(rank[i]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace weft
