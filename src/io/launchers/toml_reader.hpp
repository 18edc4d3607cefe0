// The part of TOML that configuration files of training jobs use, as JSON: tables, keys, strings in one line, numbers,
// booleans and arrays. Dates, inline tables, arrays of tables and strings over several lines are refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace weft {

// Infinities and "not a number" become the strings "inf", "-inf" and "nan". Throws Error with the file and the line.
nlohmann::json parse_toml(const std::string& text, const std::string& file_name);

}  // namespace weft
