// A program that a plan carries by value: from a file, or made for the links of a machine. Transfers share it; two are
// equal where the programs are.
#pragma once

#include <memory>
#include <string>

#include "collective/program.hpp"

namespace weft {

struct CarriedProgram {
  std::string origin;  // where it comes from, in words: "ring.xml", "2 trees in 4 parts for dgx1-v100"
  Program program;
  friend bool operator==(const CarriedProgram&, const CarriedProgram&) = default;
};

class ProgramRef {
 public:
  ProgramRef() = default;
  explicit ProgramRef(CarriedProgram carried) : carried_(std::make_shared<const CarriedProgram>(std::move(carried))) {}

  explicit ProgramRef(std::shared_ptr<const CarriedProgram> carried) : carried_(std::move(carried)) {}

  explicit operator bool() const { return carried_ != nullptr; }
  const CarriedProgram& operator*() const { return *carried_; }
  const CarriedProgram* operator->() const { return carried_.get(); }
  // The same for all copies of one reference.
  const std::shared_ptr<const CarriedProgram>& shared() const { return carried_; }
  friend bool operator==(const ProgramRef& a, const ProgramRef& b) {
    return a.carried_ == b.carried_ || (a.carried_ && b.carried_ && *a.carried_ == *b.carried_);
  }

 private:
  std::shared_ptr<const CarriedProgram> carried_;
};

}  // namespace weft
