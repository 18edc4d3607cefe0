// Reads what a job's links carry: a JSON file of bandwidths, or what NVIDIA's nccl-tests print (docs/links-format.md).
#pragma once

#include <string>
#include <vector>

#include "cost/measured_links.hpp"

namespace weft {

// Takes either; a text whose first character is '{' is JSON. Throws Error naming the file, the line or key, the value
// and what is allowed.
std::vector<MeasuredCollective> read_measured_links(const std::string& text, const std::string& file_name);

// The output of one of the tests. Which collective it measured is in its text, or in the file's name.
MeasuredCollective read_nccl_tests(const std::string& text, const std::string& file_name);

}  // namespace weft
