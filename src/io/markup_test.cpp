#include "io/markup.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(MarkupText, EscapesWhatIsMarkup) {
  EXPECT_EQ(markup_text("a<b & \"c\" ]]>"), "a&lt;b &amp; &quot;c&quot; ]]&gt;");
}

// Unicode 15, table 3-7 has the byte sequences that are well-formed; XML 1.0, production 2 the characters.
TEST(MarkupText, KeepsCharactersAndNothingElse) {
  EXPECT_EQ(markup_text("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"), "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(markup_text("a\tb\n\x7f"), "a?b??");
  EXPECT_EQ(markup_text("\xff\xc3"), "??");            // no first byte; an end that is missing
  EXPECT_EQ(markup_text("\xc0\xbc"), "??");            // '<' in more bytes than it takes
  EXPECT_EQ(markup_text("\xe0\x80\xbc"), "???");       // the same in three
  EXPECT_EQ(markup_text("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(markup_text("\xef\xbf\xbf"), "???");       // U+FFFF
  EXPECT_EQ(markup_text("\xf4\x90\x80\x80"), "????");  // beyond U+10FFFF
  EXPECT_EQ(markup_text("\xc2\x85"), "??");            // a control character
  EXPECT_EQ(markup_text("\xe2\x82<"), "??&lt;");       // cut off by markup
}

}  // namespace
}  // namespace weft
