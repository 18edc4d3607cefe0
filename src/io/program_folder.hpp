// A folder of programs that were made for topologies, one file for each question. It is a cache: any file may be
// missing, cut short or another's, and it may be deleted at any time.
#pragma once

#include <filesystem>

#include "cost/program_store.hpp"

namespace weft {

class ProgramFolder : public ProgramStore {
 public:
  // The folder is made when the first program is kept.
  explicit ProgramFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // A file whose key is another (two keys with one hash), or that is no such file, is as good as none.
  std::optional<CarriedProgram> find(const std::string& key) override;
  void keep(const std::string& key, const CarriedProgram& program) override;

 private:
  std::filesystem::path file_of(const std::string& key) const;

  std::filesystem::path folder_;
};

}  // namespace weft
