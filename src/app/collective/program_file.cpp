#include "app/collective/program_file.hpp"

#include "app/files.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "io/program_json.hpp"

namespace weft {

bool is_program_json(const std::string& file) {
  return file.ends_with(".json");
}

Program read_program_file(const std::string& file) {
  const std::string text = read_text_file(file);
  return is_program_json(file) ? read_program_json(text, file) : read_msccl_xml(text, file);
}

}  // namespace weft
