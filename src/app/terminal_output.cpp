#include "app/terminal_output.hpp"

#include <algorithm>

namespace weft {
namespace {

// A blank position of the line, and how wide what stands before it is.
struct Blank {
  std::size_t at = 0, width = 0;
};

bool is_for_programs(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == std::string::npos) return true;
  const std::string rest = line.substr(begin, 5);
  return rest.starts_with("weft ") || rest[0] == '"' || rest[0] == '{' || rest[0] == '[';
}

}  // namespace

std::string wrap_line(const std::string& line, std::size_t columns) {
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t indent = std::min(begin + 2, columns / 2);
  std::string text;
  std::size_t from = 0, width = 0;
  Blank last;
  bool in_escape = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto byte = static_cast<unsigned char>(line[i]);
    if (byte == 0x1b) in_escape = true;
    if (in_escape) {
      in_escape = line[i] != 'm';
      continue;
    }
    if (line[i] == ' ' && i > begin) last = {i, width};
    if ((byte & 0xC0) == 0x80) continue;  // goes on with a code point
    ++width;
    if (width <= columns || last.at <= from) continue;
    text.append(line, from, last.at - from);
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
    text.append(indent, ' ');
    from = line.find_first_not_of(' ', last.at);
    if (from == std::string::npos) return text.substr(0, text.rfind('\n'));
    width = indent + (width - last.width - std::min(width - last.width, from - last.at));
    last = {from, 0};
  }
  return text.append(line, from);
}

TerminalOutput::~TerminalOutput() {
  sync();
}

bool TerminalOutput::write(const std::string& text) {
  return target_.sputn(text.data(), static_cast<std::streamsize>(text.size())) ==
         static_cast<std::streamsize>(text.size());
}

bool TerminalOutput::put(char c) {
  if (c != '\n') {
    line_ += c;
    return true;
  }
  const bool whole = line_.size() <= columns_ || is_for_programs(line_);
  const bool written = write((whole ? line_ : wrap_line(line_, columns_)) + '\n');
  line_.clear();
  return written;
}

TerminalOutput::int_type TerminalOutput::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  return put(traits_type::to_char_type(c)) ? c : traits_type::eof();
}

std::streamsize TerminalOutput::xsputn(const char* text, std::streamsize size) {
  for (std::streamsize i = 0; i < size; ++i) {
    if (!put(text[i])) return i;
  }
  return size;
}

// What has no line's end yet is shown as it is.
int TerminalOutput::sync() {
  const bool written = write(line_);
  line_.clear();
  return written && target_.pubsync() == 0 ? 0 : -1;
}

}  // namespace weft
