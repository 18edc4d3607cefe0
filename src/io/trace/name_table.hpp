// Names stored once, numbered in order of appearance.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weft {

class NameTable {
 public:
  std::int32_t number_of(std::string_view name) {
    if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
    const auto number = static_cast<std::int32_t>(names_.size());
    names_.emplace_back(name);
    numbers_.emplace(names_.back(), number);
    return number;
  }
  const std::string& operator[](std::int32_t number) const { return names_[number]; }
  std::vector<std::string> take() {
    numbers_.clear();
    return std::move(names_);
  }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> numbers_;  // looked up, never walked
  std::vector<std::string> names_;
};

}  // namespace weft
