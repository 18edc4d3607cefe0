// Where programs that were made for a topology are kept between commands.
#pragma once

#include <optional>
#include <string>

#include "collective/carried_program.hpp"

namespace weft {

class ProgramStore {
 public:
  virtual ~ProgramStore() = default;
  // `key` says all that the program was made for. Nothing where none is kept, or what is kept cannot be read. What
  // comes back is not proven. May be called from several threads.
  virtual std::optional<CarriedProgram> find(const std::string& key) = 0;
  // Failing to write is no error: the program is made again the next time.
  virtual void keep(const std::string& key, const CarriedProgram& program) = 0;
};

}  // namespace weft
