#include "collective/synthesis/linear_program.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <bit>
#include <cfloat>
#include <string>

#include "base/error.hpp"

namespace weft {
namespace {

// The part of CBC's C interface that is used here, as its header declares it (Cbc_C_Interface.h, 2.10). A model is a
// pointer that only CBC looks into.
struct CbcLibrary {
  void* handle = nullptr;  // stays until the process ends
  void* (*create)() = nullptr;
  void (*destroy)(void* model) = nullptr;
  void (*load)(void* model, int columns, int rows, const int* starts, const int* row_of, const double* value,
               const double* column_least, const double* column_most, const double* cost, const double* row_least,
               const double* row_most) = nullptr;
  void (*set_whole)(void* model, int column) = nullptr;
  void (*set_log_level)(void* model, int level) = nullptr;
  void (*set_parameter)(void* model, const char* name, const char* value) = nullptr;
  int (*solve)(void* model) = nullptr;
  int (*is_optimal)(void* model) = nullptr;
  const double* (*values)(void* model) = nullptr;

  template <class Function>
  void find(Function*& function, const char* name) {
    function = std::bit_cast<Function*>(dlsym(handle, name));  // POSIX: pointers to functions and data are alike
    if (function == nullptr) fail("libCbcSolver.so.3 has no {}: it is another version than Weft knows", name);
  }
};

CbcLibrary load_cbc() {
  CbcLibrary cbc;
  cbc.handle = dlopen("libCbcSolver.so.3", RTLD_NOW | RTLD_LOCAL);
  if (cbc.handle == nullptr) return cbc;
  cbc.find(cbc.create, "Cbc_newModel");
  cbc.find(cbc.destroy, "Cbc_deleteModel");
  cbc.find(cbc.load, "Cbc_loadProblem");
  cbc.find(cbc.set_whole, "Cbc_setInteger");
  cbc.find(cbc.set_log_level, "Cbc_setLogLevel");
  cbc.find(cbc.set_parameter, "Cbc_setParameter");
  cbc.find(cbc.solve, "Cbc_solve");
  cbc.find(cbc.is_optimal, "Cbc_isProvenOptimal");
  cbc.find(cbc.values, "Cbc_getColSolution");
  return cbc;
}

const CbcLibrary& cbc_library() {
  static const CbcLibrary cbc = load_cbc();
  return cbc;
}

double within_cbc(double bound) {
  return bound == kUnbounded ? DBL_MAX : bound == -kUnbounded ? -DBL_MAX : bound;
}

}  // namespace

std::int32_t LinearProgram::add_row(double least, double most) {
  rows.push_back({least, most});
  return static_cast<std::int32_t>(rows.size()) - 1;
}

std::int32_t LinearProgram::add_column(Column column) {
  columns.push_back(std::move(column));
  return static_cast<std::int32_t>(columns.size()) - 1;
}

bool has_linear_solver() {
  return cbc_library().handle != nullptr;
}

std::optional<std::vector<double>> solve(const LinearProgram& program, double seconds) {
  const CbcLibrary& cbc = cbc_library();
  if (cbc.handle == nullptr) return std::nullopt;
  std::vector<int> starts{0}, row_of;
  std::vector<double> value, column_least, column_most, cost, row_least, row_most;
  for (const LinearProgram::Column& column : program.columns) {
    for (const LinearProgram::Entry& entry : column.entries) {
      row_of.push_back(entry.row);
      value.push_back(entry.value);
    }
    starts.push_back(static_cast<int>(row_of.size()));
    column_least.push_back(within_cbc(column.least));
    column_most.push_back(within_cbc(column.most));
    cost.push_back(column.cost);
  }
  for (const LinearProgram::Row& row : program.rows) {
    row_least.push_back(within_cbc(row.least));
    row_most.push_back(within_cbc(row.most));
  }
  void* model = cbc.create();
  cbc.load(model, static_cast<int>(program.columns.size()), static_cast<int>(program.rows.size()), starts.data(),
           row_of.data(), value.data(), column_least.data(), column_most.data(), cost.data(), row_least.data(),
           row_most.data());
  for (std::size_t i = 0; i < program.columns.size(); ++i) {
    if (program.columns[i].is_whole) cbc.set_whole(model, static_cast<int>(i));
  }
  cbc.set_log_level(model, 0);  // it would print
  cbc.set_parameter(model, "sec", fmt::format("{}", seconds).c_str());
  cbc.solve(model);
  std::optional<std::vector<double>> values;
  if (cbc.is_optimal(model) != 0) {
    const double* found = cbc.values(model);
    values.emplace(found, found + program.columns.size());
  }
  cbc.destroy(model);
  return values;
}

}  // namespace weft
