#include "io/launchers/toml_reader.hpp"

#include <cctype>
#include <charconv>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

class TomlReader {
 public:
  TomlReader(const std::string& text, const std::string& file) : text_(text), file_(file) {}

  nlohmann::json read() {
    nlohmann::json document = nlohmann::json::object();
    nlohmann::json* table = &document;
    for (skip_blank(); !at_end(); skip_blank()) {
      if (peek() == '[') {
        table = &read_table(document);
      } else {
        read_pair(*table);
      }
      end_line();
    }
    return document;
  }

 private:
  static constexpr int kMaxDepth = 16;

  [[noreturn]] void reject(const std::string& wanted) const {
    fail("{}: line {}: here {} is expected", file_, line_, wanted);
  }
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\n' : text_[at_]; }

  void skip_spaces() {
    while (!at_end() && (peek() == ' ' || peek() == '\t' || peek() == '\r')) ++at_;
  }
  void skip_comment() {
    if (!at_end() && peek() == '#') {
      while (!at_end() && peek() != '\n') ++at_;
    }
  }
  // Spaces, comments and ends of lines.
  void skip_blank() {
    for (;;) {
      skip_spaces();
      skip_comment();
      if (at_end() || peek() != '\n') return;
      ++at_;
      ++line_;
    }
  }
  void end_line() {
    skip_spaces();
    skip_comment();
    if (!at_end() && peek() != '\n') reject("the end of the line");
  }

  std::string read_key() {
    skip_spaces();
    if (peek() == '"' || peek() == '\'') return read_string();
    std::string key;
    while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '_' || peek() == '-') key += text_[at_++];
    if (key.empty()) reject("a key");
    return key;
  }

  // [a.b]
  nlohmann::json& read_table(nlohmann::json& document) {
    ++at_;
    nlohmann::json* table = &document;
    for (int depth = 0;; ++depth) {
      nlohmann::json& next = (*table)[read_key()];
      if (next.is_null()) next = nlohmann::json::object();
      if (!next.is_object() || depth > kMaxDepth) reject("a table");
      table = &next;
      skip_spaces();
      if (peek() != '.') break;
      ++at_;
    }
    if (peek() != ']') reject("]");
    ++at_;
    return *table;
  }

  void read_pair(nlohmann::json& table) {
    const std::string key = read_key();
    skip_spaces();
    if (peek() != '=') reject("= and a value");
    ++at_;
    if (table.contains(key)) fail("{}: line {}: key '{}' is given twice", file_, line_, key);
    table[key] = read_value(0);
  }

  nlohmann::json read_value(int depth) {
    skip_spaces();
    if (peek() == '[' && depth < kMaxDepth) return read_array(depth);
    if (peek() == '"' || peek() == '\'') return read_string();
    return read_word();
  }

  nlohmann::json read_array(int depth) {
    nlohmann::json array = nlohmann::json::array();
    for (++at_;;) {
      skip_blank();
      if (peek() != ']') {
        array.push_back(read_value(depth + 1));
        skip_blank();
      }
      if (peek() == ']' && !at_end()) break;
      if (peek() != ',') reject("a comma or ]");
      ++at_;
    }
    ++at_;
    return array;
  }

  std::string read_string() {
    const char quote = text_[at_++];
    std::string text;
    while (!at_end() && peek() != quote) {
      if (peek() == '\n') reject("the end of the string");
      if (peek() == '\\' && quote == '"') {
        ++at_;
        if (std::string_view("\"\\nt").find(peek()) == std::string_view::npos) reject("one of \\\" \\\\ \\n \\t");
        text += peek() == 'n' ? '\n' : peek() == 't' ? '\t' : peek();
        ++at_;
      } else {
        text += text_[at_++];
      }
    }
    if (at_end()) reject("the end of the string");
    ++at_;
    return text;
  }

  // A number or a boolean; underscores may stand between digits.
  nlohmann::json read_word() {
    std::string word;
    while (!at_end() && std::string_view(" \t\r\n,]#").find(peek()) == std::string_view::npos) {
      if (peek() != '_') word += peek();
      ++at_;
    }
    if (word == "true" || word == "false") return word == "true";
    if (word == "inf" || word == "+inf" || word == "-inf" || word == "nan") return word == "+inf" ? "inf" : word;
    const std::string_view digits = std::string_view(word).substr(word.starts_with('+') ? 1 : 0);
    const char *const begin = digits.data(), *const end = begin + digits.size();
    std::int64_t whole = 0;
    if (const auto result = std::from_chars(begin, end, whole); result.ec == std::errc() && result.ptr == end) {
      return whole;
    }
    double number = 0;
    if (const auto result = std::from_chars(begin, end, number); result.ec == std::errc() && result.ptr == end) {
      return number;
    }
    reject("a string in quotes, a number, true, false or an array");
  }

  const std::string& text_;
  std::string file_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

nlohmann::json parse_toml(const std::string& text, const std::string& file_name) {
  return TomlReader(text, file_name).read();
}

}  // namespace weft
