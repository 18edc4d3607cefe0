#include "io/report/report_page.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "base/error.hpp"
#include "io/report/base64.hpp"

namespace weft {
namespace {

std::string written(const ReportPage& page) {
  std::ostringstream out;
  write_report_page(out, page);
  return out.str();
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

const std::string kHostile = "</script><img src=x onerror=alert(1)>&\"'";

ReportPage hostile_page() {
  ReportPage page;
  page.title = kHostile;
  page.sources.push_back({kHostile, {{"z", kHostile}, {"a", 1}}, {{kHostile, kHostile, base64("bytes")}}});
  page.sources.push_back({"second", nullptr, {}});
  return page;
}

// RFC 4648, section 10.
TEST(Base64, OfTheStandardsExamples) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xfb\xff"), "+/8=");
  EXPECT_FALSE(is_base64("Zg==<"));
  for (const char* bytes : {"", "f", "fo", "foo", "foob", "fooba", "foobar", "\xfb\xff"}) {
    EXPECT_EQ(bytes_of_base64(base64(bytes)), bytes);
  }
}

TEST(ReportPage, NamesCannotEndTheElementTheyStandIn) {
  const std::string text = written(hostile_page());
  EXPECT_EQ(count(text, "<img"), 0U);
  EXPECT_EQ(count(text, "</script>"), 3U);  // of the data, of one timeline, of the page's own script
  EXPECT_EQ(count(text, "<title>&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&amp;&quot;'</title>"), 1U);
}

TEST(ReportPage, LoadsNothing) {
  const std::string text = written(hostile_page());
  EXPECT_EQ(count(text, "default-src 'none'"), 1U);
  for (const char* address : {"src=\"", "href=", "@import", "url(", "fetch("})
    EXPECT_EQ(count(text, address), 0U) << address;
}

TEST(ReportPage, ReadsBackWhatItWrote) {
  const ReportPage page = read_report_page(written(hostile_page()), "page.html");
  EXPECT_EQ(page.title, kHostile);
  ASSERT_EQ(page.sources.size(), 2U);
  EXPECT_EQ(page.sources[0].name, kHostile);
  EXPECT_EQ(page.sources[0].summary.begin().key(), "z");  // in its order
  ASSERT_EQ(page.sources[0].timelines.size(), 1U);
  EXPECT_EQ(page.sources[0].timelines[0].packed, base64("bytes"));
  EXPECT_TRUE(page.sources[1].summary.is_null());
  EXPECT_EQ(written(page), written(hostile_page()));
}

TEST(ReportPage, RefusesWhatIsNoPage) {
  EXPECT_THROW(read_report_page("<!doctype html>", "page.html"), Error);
  const std::string text = written(hostile_page());
  EXPECT_THROW(read_report_page(text.substr(0, text.find("weft-timeline")), "page.html"), Error);
  std::string other = text;
  other.replace(other.find("\"weft_report\":1"), 15, "\"weft_report\":2");
  EXPECT_THROW(read_report_page(other, "page.html"), Error);
}

}  // namespace
}  // namespace weft
