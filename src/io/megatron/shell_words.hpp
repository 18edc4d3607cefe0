// Enough of a shell to read launch scripts: words, quotes, comments, continued lines, variables and arrays that the
// same text sets. Nothing is ever run.
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

// Variables that the text does not set stay as they are written ("$NAME"), so do command substitutions. What depends on
// a condition is read as if it always held. Throws Error naming the file and line for quotes and parentheses without
// end and for values that grow beyond a megabyte.
ShellText read_shell(std::string_view text, const std::string& file_name);

}  // namespace weft
