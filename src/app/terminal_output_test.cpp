#include "app/terminal_output.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace weft {
namespace {

TEST(TerminalOutput, LinesGoOnAtWords) {
  EXPECT_EQ(wrap_line("one two three", 20), "one two three");
  EXPECT_EQ(wrap_line("one two three", 13), "one two three");
  EXPECT_EQ(wrap_line("one two three", 12), "one two\n  three");
  EXPECT_EQ(wrap_line("one two three four", 8), "one two\n  three\n  four");
  EXPECT_EQ(wrap_line("  one two three", 12), "  one two\n    three");
}

TEST(TerminalOutput, AWordThatIsTooWideStaysWhole) {
  EXPECT_EQ(wrap_line("abcdefghijklmnop", 8), "abcdefghijklmnop");
  EXPECT_EQ(wrap_line("abcdefghijklmnop qr", 8), "abcdefghijklmnop\n  qr");
}

TEST(TerminalOutput, EscapesAndContinuationBytesHaveNoWidth) {
  EXPECT_EQ(wrap_line("\x1b[1mone two\x1b[0m", 7), "\x1b[1mone two\x1b[0m");
  EXPECT_EQ(wrap_line("\u2588\u2588\u2588 \u2588\u2588\u2588", 7), "\u2588\u2588\u2588 \u2588\u2588\u2588");
}

TEST(TerminalOutput, NothingIsLostAndNoLineIsWider) {
  std::string words;
  for (int i = 0; i < 200; ++i) {
    words += std::string(static_cast<std::size_t>(1 + i * 7 % 11), static_cast<char>('a' + i % 26)) + " ";
  }
  words.pop_back();
  for (std::size_t columns = 13; columns < 90; ++columns) {
    std::istringstream lines(wrap_line(words, columns));
    std::string line, joined;
    while (std::getline(lines, line)) {
      EXPECT_LE(line.size(), columns);
      joined += (joined.empty() ? "" : " ") + line.substr(joined.empty() ? 0 : 2);
    }
    EXPECT_EQ(joined, words) << columns;
  }
}

TEST(TerminalOutput, JsonAndCommandsStayWhole) {
  std::ostringstream target;
  {
    TerminalOutput output(*target.rdbuf(), 10);
    std::ostream out(&output);
    out << "  \"key\": \"a long text in JSON\"\n  weft plan --model gpt2 --tp 2\nsome prose that is long\nno end";
  }
  EXPECT_EQ(
      target.str(),
      "  \"key\": \"a long text in JSON\"\n  weft plan --model gpt2 --tp 2\nsome prose\n  that is\n  long\nno end");
}

}  // namespace
}  // namespace weft
