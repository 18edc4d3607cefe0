// Any bytes as a Hugging Face config: read_hf_config returns a shape that can be counted, or throws
// weft::Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "io/hf_config.hpp"
#include "model/counts.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::Transformer shape;
  try {
    shape = weft::read_hf_config(std::string(data, data + size), "config.json");
  } catch (const weft::Error&) {
    return 0;
  }
  // Outside the try: a shape that was accepted counts without an error.
  WEFT_CHECK(weft::active_parameters(shape) > 0);
  WEFT_CHECK(weft::active_parameters(shape) <= weft::total_parameters(shape));
  WEFT_CHECK(weft::model_flops(shape, shape.max_seq, 1).value > 0);
  return 0;
}
