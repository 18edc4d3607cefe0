#include "io/megatron/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "io/megatron/shell_arithmetic.hpp"

namespace weft {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;  // of all expansions: a script may double a variable again and again

bool starts_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool in_name(char c) {
  return starts_name(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

// A word that is being read: its text so far, and whether there is one (quotes make an empty word).
struct Pending {
  std::string text;
  bool begun = false;
  bool quoted = false;  // some of it was in quotes
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  ShellText read() {
    while (at_ < text_.size()) read_command();
    ShellText result;
    result.commands = std::move(commands_);
    for (const std::string& name : array_order_) result.arrays.push_back({name, arrays_.at(name)});
    return result;
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void advance() {
    if (text_[at_] == '\n') ++line_;
    ++at_;
  }

  // A backslash before a line's end joins the lines.
  bool skip_continuation() {
    if (peek() != '\\') return false;
    const std::size_t end = peek(1) == '\r' ? 2 : 1;
    if (peek(end) != '\n') return false;
    at_ += end;
    advance();
    return true;
  }

  void skip_blanks() {
    while (at_ < text_.size()) {
      if (is_blank(peek())) {
        ++at_;
      } else if (peek() == '#') {
        while (at_ < text_.size() && peek() != '\n') ++at_;
      } else if (!skip_continuation()) {
        return;
      }
    }
  }

  static bool ends_command(char c) { return c == '\n' || c == ';' || c == '&' || c == '|'; }
  bool at_redirection() const { return peek() == '<' || peek() == '>' || (peek() == '&' && peek(1) == '>'); }

  void read_command() {
    std::vector<ShellWord> words;
    for (skip_blanks(); at_ < text_.size() && (!ends_command(peek()) || at_redirection()); skip_blanks()) {
      const bool first = words.empty() || words.back().text == "export" || words.back().text == "then";
      if (at_redirection()) {
        skip_redirection(words);
      } else if (peek() == '(' || peek() == ')') {  // a subshell: its words count like any other's
        advance();
      } else if (!first || !read_assignment()) {
        read_word(words);
      }
    }
    if (at_ < text_.size()) advance();
    if (words.empty()) return;
    const bool other_branch = words.front().text == "else" || words.front().text == "elif";
    if (other_branch) {
      skip_branches();
    } else {
      commands_.push_back(std::move(words));
    }
  }

  // Skips the branches that an `if` whose condition held leaves out, up to its `fi`.
  void skip_branches() {
    int inner = 0;
    while (at_ < text_.size()) {
      while (at_ < text_.size() && (is_blank(peek()) || ends_command(peek()))) advance();
      const std::size_t begin = at_;
      while (at_ < text_.size() && !is_blank(peek()) && !ends_command(peek())) advance();
      const std::string_view word = std::string_view(text_).substr(begin, at_ - begin);
      if (word == "if") ++inner;
      if (word == "fi" && inner-- == 0) return;
      while (at_ < text_.size() && peek() != '\n' && peek() != ';') advance();
    }
  }

  // "2>&1", "&> log", "< input": neither the descriptor nor the target is a word.
  void skip_redirection(std::vector<ShellWord>& words) {
    const bool touches = at_ > 0 && std::isdigit(static_cast<unsigned char>(text_[at_ - 1])) != 0;
    if (touches && !words.empty() && words.back().text.find_first_not_of("0123456789") == std::string::npos) {
      words.pop_back();
    }
    while (peek() == '<' || peek() == '>' || peek() == '&') ++at_;
    while (is_blank(peek())) ++at_;
    std::vector<ShellWord> target;
    read_word(target);
  }

  // NAME=word, NAME+=word, NAME=( words ) or NAME+=( words ).
  bool read_assignment() {
    std::size_t end = at_;
    while (end < text_.size() && in_name(text_[end])) ++end;
    if (end == at_ || !starts_name(text_[at_])) return false;
    const std::string name(text_.substr(at_, end - at_));
    const bool appends = end + 1 < text_.size() && text_[end] == '+' && text_[end + 1] == '=';
    if (!appends && (end >= text_.size() || text_[end] != '=')) return false;
    at_ = end + (appends ? 2 : 1);
    if (peek() == '(') {
      assign_array(name, appends);
      return true;
    }
    const int line = line_;
    std::vector<ShellWord> words;
    read_word(words, false);
    std::string value;  // an array's elements, where one is expanded here, side by side
    for (const ShellWord& word : words) value += (value.empty() ? "" : " ") + word.text;
    if (appends && arrays_.contains(name)) {
      arrays_[name].push_back({value, line});
    } else {
      std::string& variable = variables_[name];
      variable = appends ? variable + value : value;
      count(variable.size());
    }
    return true;
  }

  void assign_array(const std::string& name, bool appends) {
    const int opened = line_;
    advance();
    std::vector<ShellWord> words;
    while (true) {
      skip_blanks();
      if (at_ >= text_.size()) fail("{}: line {}: {}=( has no end", file_, opened, name);
      if (peek() == ')') break;
      if (ends_command(peek()) || peek() == '(' || peek() == '<' || peek() == '>') {
        advance();
      } else {
        read_word(words);
      }
    }
    advance();
    if (!arrays_.contains(name)) array_order_.push_back(name);
    std::vector<ShellWord>& array = arrays_[name];
    if (!appends) array.clear();
    for (ShellWord& word : words) {
      count(word.text.size() + sizeof(ShellWord));
      array.push_back(std::move(word));
    }
  }

  // One word, or several where an expansion without quotes holds several; none where it holds none.
  void read_word(std::vector<ShellWord>& words, bool splits = true) {
    Pending word;
    const int line = line_;
    while (at_ < text_.size()) {
      const char c = peek();
      if (is_blank(c) || ends_command(c) || c == ')' || c == '(' || c == '<' || c == '>') break;
      if (skip_continuation()) break;
      if (c == '\\') {
        ++at_;
        if (at_ >= text_.size()) break;
        add(word, peek());
        advance();
      } else if (c == '\'') {
        read_single_quotes(word);
      } else if (c == '"') {
        read_double_quotes(word, words);
      } else if (c == '$' || c == '`') {
        expand(word, words, false, splits);
      } else {
        add(word, c);
        advance();
      }
    }
    finish(word, words, line);
  }

  void read_single_quotes(Pending& word) {
    const int opened = line_;
    word.begun = word.quoted = true;
    for (advance(); peek() != '\''; advance()) {
      if (at_ >= text_.size()) fail("{}: line {}: a quote (') has no end", file_, opened);
      word.text += peek();
    }
    advance();
  }

  void read_double_quotes(Pending& word, std::vector<ShellWord>& words) {
    const int opened = line_;
    word.begun = word.quoted = true;
    advance();
    while (peek() != '"') {
      if (at_ >= text_.size()) fail("{}: line {}: a quote (\") has no end", file_, opened);
      if (skip_continuation()) {
        word.text += ' ';
      } else if (peek() == '\\' && (peek(1) == '"' || peek(1) == '\\' || peek(1) == '$' || peek(1) == '`')) {
        ++at_;
        add(word, peek());
        advance();
      } else if (peek() == '$' || peek() == '`') {
        expand(word, words, true, true);
      } else {
        add(word, peek());
        advance();
      }
    }
    advance();
  }

  // At '$' or '`'.
  void expand(Pending& word, std::vector<ShellWord>& words, bool quoted, bool splits) {
    const std::size_t begin = at_;
    const int opened = line_;
    if (peek() == '`') {
      for (advance(); peek() != '`'; advance()) {
        if (at_ >= text_.size()) fail("{}: line {}: a ` has no end", file_, opened);
      }
      advance();
      keep(word, begin);
    } else if (peek(1) == '(') {
      ++at_;
      skip_balanced('(', ')', opened);
      if (const auto number = arithmetic(begin)) {
        append(word, words, std::to_string(*number), quoted, splits);
      } else {
        keep(word, begin);
      }
    } else if (peek(1) == '{') {
      ++at_;
      skip_balanced('{', '}', opened);
      expand_braces(word, words, begin, quoted, splits);
    } else if (starts_name(peek(1))) {
      ++at_;
      while (at_ < text_.size() && in_name(peek())) ++at_;
      const std::string name(text_.substr(begin + 1, at_ - begin - 1));
      expand_variable(word, words, begin, name, quoted, splits);
    } else {  // $1, $@, a lone $
      at_ = std::min(
          text_.size(),
          at_ + (peek(1) == '\0' || is_blank(peek(1)) || peek(1) == '\n' || peek(1) == '"' || peek(1) == '\'' ? 1 : 2));
      keep(word, begin);
    }
  }

  // From the opening bracket at at_ to behind its partner.
  void skip_balanced(char open, char close, int opened) {
    int depth = 0;
    do {
      if (at_ >= text_.size()) fail("{}: line {}: a ${} has no end", file_, opened, open);
      if (peek() == open) ++depth;
      if (peek() == close) --depth;
      advance();
    } while (depth > 0);
  }

  // The number of a $((...)) that begins at `begin` and has just been passed.
  std::optional<std::int64_t> arithmetic(std::size_t begin) const {
    const std::string_view whole = text_.substr(begin, at_ - begin);
    if (!whole.starts_with("$((") || !whole.ends_with("))")) return std::nullopt;
    return shell_arithmetic(whole.substr(3, whole.size() - 5),
                            [&](const std::string& name) -> std::optional<std::string> {
                              const auto found = variables_.find(name);
                              if (found == variables_.end()) return std::nullopt;
                              return found->second;
                            });
  }

  // ${NAME}, ${NAME[@]}, ${NAME:-default}; other forms stay as they are.
  void expand_braces(Pending& word, std::vector<ShellWord>& words, std::size_t begin, bool quoted, bool splits) {
    const std::string inside(text_.substr(begin + 2, at_ - begin - 3));
    std::size_t end = 0;
    while (end < inside.size() && in_name(inside[end])) ++end;
    const std::string name = inside.substr(0, end), rest = inside.substr(end);
    if (name.empty() || !starts_name(name.front())) {
      keep(word, begin);
    } else if (rest.empty()) {
      expand_variable(word, words, begin, name, quoted, splits);
    } else if (rest == "[@]" || rest == "[*]") {
      expand_array(word, words, begin, name);
    } else if (rest.starts_with(":-") || rest.starts_with(":=")) {
      const auto found = variables_.find(name);
      const bool set = found != variables_.end() && !found->second.empty();
      append(word, words, set ? found->second : rest.substr(2), quoted, splits);
    } else {
      keep(word, begin);
    }
  }

  void expand_variable(Pending& word, std::vector<ShellWord>& words, std::size_t begin, const std::string& name,
                       bool quoted, bool splits) {
    if (const auto found = variables_.find(name); found != variables_.end()) {
      append(word, words, found->second, quoted, splits);
    } else if (const auto array = arrays_.find(name); array != arrays_.end()) {
      append(word, words, array->second.empty() ? "" : array->second.front().text, quoted, splits);
    } else {
      keep(word, begin);
    }
  }

  // Each element is a word of its own, in quotes too; the first and last join what stands beside them.
  void expand_array(Pending& word, std::vector<ShellWord>& words, std::size_t begin, const std::string& name) {
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) {
      keep(word, begin);
      return;
    }
    if (found->second.empty() && word.text.empty()) word.begun = false;
    for (std::size_t i = 0; i < found->second.size(); ++i) {
      const ShellWord& element = found->second[i];
      if (i > 0) finish(word, words, found->second[i - 1].line);
      count(element.text.size() + sizeof(ShellWord));
      word.text += element.text;
      word.begun = true;
    }
  }

  void append(Pending& word, std::vector<ShellWord>& words, const std::string& value, bool quoted, bool splits) {
    count(value.size());
    if (quoted || !splits) {
      word.text += value;
      word.begun = word.begun || !value.empty();
      return;
    }
    for (const char c : value) {
      if (is_blank(c) || c == '\n') {
        finish(word, words, line_);
      } else {
        add(word, c);
      }
    }
  }

  // What cannot be expanded stays as it is written.
  void keep(Pending& word, std::size_t begin) {
    word.text += text_.substr(begin, at_ - begin);
    word.begun = true;
  }

  static void add(Pending& word, char c) {
    word.text += c;
    word.begun = true;
  }

  static void finish(Pending& word, std::vector<ShellWord>& words, int line) {
    if (word.begun) words.push_back({std::move(word.text), line});
    word = {};
  }

  void count(std::size_t bytes) {
    made_ += bytes;
    if (made_ > kMaxBytes) fail("{}: line {}: variables grow beyond a megabyte", file_, line_);
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::size_t made_ = 0;
  std::vector<std::vector<ShellWord>> commands_;
  std::map<std::string, std::string> variables_;
  std::map<std::string, std::vector<ShellWord>> arrays_;
  std::vector<std::string> array_order_;
};

}  // namespace

ShellText read_shell(std::string_view text, const std::string& file_name) {
  return Reader(text, file_name).read();
}

}  // namespace weft
