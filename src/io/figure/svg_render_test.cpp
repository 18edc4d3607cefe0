// Figures as PNG and PDF: sizes and bytes that the formats' own rules give.
#include "io/figure/svg_render.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "io/figure/figure_sheet.hpp"

namespace weft {
namespace {

std::string sample_svg() {
  FigureSheet sheet("Words", "");
  sheet.box({10, 40, 300, 50}, "#ff0000");
  sheet.move_down(59);  // 34 of the title, 59, and a margin of 7: 100
  return sheet.svg();
}

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

class Rendered : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string problem = rendering_problem(); !problem.empty()) GTEST_SKIP() << problem;
  }
};

// PNG, section 5: eight bytes of signature, then the header chunk with width and height at 16 and 20.
TEST_F(Rendered, PngHasThePixelsThatWereAskedFor) {
  std::ostringstream out;
  write_png(out, sample_svg(), 2);
  const std::string png = out.str();
  ASSERT_GT(png.size(), 33U);
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(big_endian(png, 16), 1600U);
  EXPECT_EQ(big_endian(png, 20), 200U);
  EXPECT_TRUE(png.ends_with(std::string("IEND\xae\x42\x60\x82", 8)));
}

// A page of 800 by 100 pixels of 1/96 inch has 600 by 75 points of 1/72 inch; the font stands in the file.
TEST_F(Rendered, PdfIsAsLargeAsThePictureAndHoldsItsFont) {
  std::ostringstream out;
  write_pdf(out, sample_svg());
  const std::string pdf = out.str();
  EXPECT_TRUE(pdf.starts_with("%PDF-"));
  EXPECT_NE(pdf.find("MediaBox [ 0 0 600 75 ]"), std::string::npos);
  EXPECT_NE(pdf.find("+WeftSans"), std::string::npos);
  EXPECT_NE(pdf.find("/FontFile"), std::string::npos);
}

TEST_F(Rendered, RefusesWhatIsNoPicture) {
  std::ostringstream out;
  EXPECT_ANY_THROW(write_png(out, "no markup", 1));
}

}  // namespace
}  // namespace weft
