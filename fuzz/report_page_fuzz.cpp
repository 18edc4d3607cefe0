// Bytes as a page of `weft report`: the reader answers with a page or an Error; what it accepts is written so that it
// reads back the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "io/report/report_page.hpp"

namespace {

std::string text_of(const weft::ReportPage& page) {
  std::ostringstream out;
  weft::write_report_page(out, page);
  return out.str();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::optional<weft::ReportPage> page;
  try {
    page = weft::read_report_page(text, "fuzz.html");
  } catch (const weft::Error&) {
    return 0;
  }
  const std::string written = text_of(*page);
  if (text_of(weft::read_report_page(written, "written")) != written) std::abort();
  return 0;
}
