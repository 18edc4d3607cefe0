#include "io/megatron/launch_flags.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "io/megatron/shell_words.hpp"

namespace weft {
namespace {

using Words = std::vector<ShellWord>;

// A word in quotes that holds a whole command line ("${run_cmd}" for srun or sh -c) is taken apart.
void add_words(const ShellWord& word, Words& words) {
  const bool holds_flags = word.text.starts_with("--") || word.text.find(" --") != std::string::npos ||
                           word.text.find("\n--") != std::string::npos;
  if (!holds_flags || word.text.find_first_of(" \t\n") == std::string::npos) {
    words.push_back(word);
    return;
  }
  std::string part;
  for (const char c : word.text + " ") {
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      part += c;
    } else if (!part.empty()) {
      words.push_back({part, word.line});
      part.clear();
    }
  }
}

bool is_flag(const ShellWord& word) {
  return word.text.size() > 2 && word.text.starts_with("--");
}

std::vector<LaunchFlag> flags_in(const Words& words) {
  std::vector<LaunchFlag> flags;
  for (const ShellWord& word : words) {
    if (!is_flag(word)) {
      if (!flags.empty() && !word.text.ends_with(".py")) flags.back().values.push_back(word.text);
      continue;
    }
    const auto equals = word.text.find('=');
    flags.push_back({word.text.substr(0, equals), {}, word.line});
    if (equals != std::string::npos) flags.back().values.push_back(word.text.substr(equals + 1));
  }
  return flags;
}

bool runs_python(const Words& words) {
  return std::any_of(words.begin(), words.end(), [](const ShellWord& word) { return word.text.ends_with(".py"); });
}

}  // namespace

std::vector<LaunchFlag> read_launch_flags(const std::string& text, const std::string& file_name) {
  const ShellText shell = read_shell(text, file_name);
  Words all, program;
  for (const Words& command : shell.commands) {
    Words words;
    for (const ShellWord& word : command) add_words(word, words);
    if (runs_python(words)) program = words;
    all.insert(all.end(), words.begin(), words.end());
  }
  std::vector<LaunchFlag> flags = flags_in(program);
  if (flags.empty()) flags = flags_in(all);
  if (flags.empty()) {
    Words words;
    for (const ShellArray& array : shell.arrays) {
      for (const ShellWord& word : array.words) add_words(word, words);
    }
    flags = flags_in(words);
  }
  if (flags.empty()) fail("{}: holds no flags; a launch line or script with --num-layers ... is expected", file_name);
  return flags;
}

}  // namespace weft
