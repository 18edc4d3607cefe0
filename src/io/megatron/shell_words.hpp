// Reads enough of a shell for launch scripts: words, quotes, comments, continued lines, and variables and arrays that
// the same text sets. Nothing is ever run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct ShellWord {
  std::string text;
  int line = 0;  // where it stands, from 1; of an array's element where the array was set
  friend bool operator==(const ShellWord&, const ShellWord&) = default;
};

struct ShellArray {
  std::string name;
  std::vector<ShellWord> words;
};

struct ShellText {
  std::vector<std::vector<ShellWord>> commands;  // assignments are carried out, not listed
  std::vector<ShellArray> arrays;                // as they are at the end, in order of first assignment
};

// Variables that the text does not set, and command substitutions, stay as they are written ("$NAME"). Conditional code
// is read as if its condition held. Throws Error naming the file and line for unclosed quotes and parentheses and for
// values beyond a megabyte.
ShellText read_shell(std::string_view text, const std::string& file_name);

}  // namespace weft
