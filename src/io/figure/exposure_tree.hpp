// Exposed time taken apart: by kind of traffic, by the transfer that was waited for, by stage.
#pragma once

#include <string>
#include <vector>

#include "io/report/page_timeline.hpp"

namespace weft {

struct ExposureNode {
  std::string name;
  double seconds = 0;                  // a step, of a mean rank; the children add up to it
  std::vector<ExposureNode> children;  // the longest first
};

// The root is all exposed time. Below it lie kinds of traffic, then transfers without the numbers in their names
// ("layer 3 ffn_reduce forward" is "layer # ffn_reduce forward"), then stages. Where several transfers of a kind ran,
// the one that ended last was waited for; where none did, its name is "unknown".
ExposureNode exposure_tree(const PageTimeline& page);

}  // namespace weft
