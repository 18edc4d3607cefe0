// Built where pugixml is not installed.
#include "base/error.hpp"
#include "io/msccl/msccl_xml.hpp"

namespace weft {

bool can_read_msccl_xml() {
  return false;
}

Program read_msccl_xml(std::string_view, const std::string& file_name) {
  fail("{}: this build cannot read MSCCL XML (pugixml was not found when it was built)", file_name);
}

}  // namespace weft
