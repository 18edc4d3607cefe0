// Any bytes as a Chakra trace: nodes that can be written in another order and read again, or weft::Error.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string_view>

#include "base/error.hpp"
#include "io/chakra/chakra_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  weft::ChakraFile file;
  try {
    file = weft::read_chakra_bytes(bytes, "step.0.et");
  } catch (const weft::Error&) {
    return 0;
  }
  std::ostringstream out;
  weft::write_chakra_order(bytes, "step.0.et", std::vector<std::vector<std::uint64_t>>(file.nodes.size()), out);
  const weft::ChakraFile again = weft::read_chakra_bytes(out.str(), "again");
  WEFT_CHECK(again.nodes.size() == file.nodes.size());
  for (std::size_t i = 0; i < file.nodes.size(); ++i) {
    WEFT_CHECK(again.nodes[i].id == file.nodes[i].id && again.nodes[i].data == file.nodes[i].data);
    WEFT_CHECK(again.nodes[i].duration == file.nodes[i].duration && again.nodes[i].control.empty());
  }
  return 0;
}
