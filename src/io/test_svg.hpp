// What tests ask of SVG.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace weft::test {

// Every element that is opened is closed in its turn, and text holds no bare & or <.
inline void expect_well_formed(const std::string& xml) {
  const std::regex tag("<(/?)([a-z]+)(?: [a-zA-Z-]+=\"[^\"<&]*\")*(/?)>");
  std::vector<std::string> open;
  std::size_t end = 0;
  for (std::sregex_iterator i(xml.begin(), xml.end(), tag), none; i != none; ++i) {
    const std::string between = xml.substr(end, static_cast<std::size_t>(i->position()) - end);
    EXPECT_EQ(between.find('<'), std::string::npos) << between;
    end = static_cast<std::size_t>(i->position() + i->length());
    if ((*i)[1].length() != 0) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*i)[2]);
      open.pop_back();
    } else if ((*i)[3].length() == 0) {
      open.push_back((*i)[2]);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(xml.substr(end), "\n");
  EXPECT_FALSE(std::regex_search(xml, std::regex("&(?!(amp|lt|gt|quot);)")));
}

inline std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

}  // namespace weft::test
