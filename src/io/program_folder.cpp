#include "io/program_folder.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/json_text.hpp"
#include "base/mix.hpp"
#include "base/output_file.hpp"
#include "io/json/json_reader.hpp"
#include "io/program_json.hpp"

namespace weft {

std::filesystem::path ProgramFolder::file_of(const std::string& key) const {
  const std::uint64_t hash = hash_text(key);
  return folder_ / fmt::format("{:016x}{:016x}.json", hash, mix_bits(hash ^ key.size()));
}

std::optional<CarriedProgram> ProgramFolder::find(const std::string& key) {
  const std::filesystem::path file = file_of(key);
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;
  try {
    const nlohmann::json value = parse_json(read_text_file(file), file.string());
    const JsonObject object(value, file.string());
    if (object.string("key") != key) return std::nullopt;
    return carried_from_json(value.at("program"), file.string());
  } catch (const std::exception&) {  // broken: it is made anew, and replaced
    return std::nullopt;
  }
}

void ProgramFolder::keep(const std::string& key, const CarriedProgram& program) {
  try {
    std::filesystem::create_directories(folder_);
    const nlohmann::ordered_json value{{"key", key}, {"program", carried_to_json(program)}};
    write_file(file_of(key), [&](std::ostream& out) { out << json_text(value) << "\n"; });
  } catch (const std::exception&) {  // a full disk or a folder without rights: the next command makes it again
  }
}

}  // namespace weft
