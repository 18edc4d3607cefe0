// Output of a terminal: lines that are wider than it go on below at a word, with two more spaces before them. Tables
// fit by themselves (base/table.hpp). Lines of JSON and lines to copy, which begin with "weft ", are left to the
// terminal.
#pragma once

#include <cstddef>
#include <streambuf>
#include <string>

namespace weft {

// The line in as many lines as it needs, without a line's end. Widths count code points; escape sequences have none.
std::string wrap_line(const std::string& line, std::size_t columns);

class TerminalOutput : public std::streambuf {
 public:
  // `target` must outlive this.
  TerminalOutput(std::streambuf& target, std::size_t columns) : target_(target), columns_(columns) {}
  ~TerminalOutput() override;
  TerminalOutput(const TerminalOutput&) = delete;
  TerminalOutput& operator=(const TerminalOutput&) = delete;

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  bool put(char c);
  bool write(const std::string& text);

  std::streambuf& target_;
  std::size_t columns_;
  std::string line_;
};

}  // namespace weft
