// Matrix products through cuBLASLt, straight into the caller's memory: of bf16 or f32, summed in f32.
#pragma once

#include <array>
#include <map>

#include "kernels/cuda/context.hpp"
#include "kernels/matrix.hpp"

namespace weft::cuda {

enum class Turned : bool { no, yes };  // yes: the matrix is read transposed

struct Factor {
  Matrix matrix;
  Turned turned = Turned::no;
  std::int64_t rows() const { return turned == Turned::yes ? matrix.columns : matrix.rows; }
  std::int64_t columns() const { return turned == Turned::yes ? matrix.rows : matrix.columns; }
};

// Several products of one shape: elements from an operand of one to that of the next.
struct Batch {
  std::int64_t count = 1, a = 0, b = 0, out = 0;
};

// out = scale a b, plus `bias` to every row, plus what is there for Into::add.
struct Product {
  Factor a, b;
  Matrix out;
  Into into = Into::overwrite;
  Vector bias = {};
  Vector sums = {};  // where not empty: the sums over the rows of a.matrix, which is turned; by `into`
  double scale = 1;
  Batch batch = {};
};

class Products {
 public:
  explicit Products(Context& context) : context_(context) {}
  void multiply(const Product& product);

 private:
  using Key = std::array<std::int64_t, 19>;
  // How cuBLASLt makes a product, found once for a key.
  struct Recipe {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, out;
    cublasLtMatmulAlgo_t algorithm;
    bool exists = false;      // cuBLASLt has an algorithm for it
    bool is_final = false;    // while calls are captured none can be tried: the library's first guess is taken
    float milliseconds = -1;  // of the best of those that were tried; -1: none was
  };

  const Recipe& recipe_for(const Product& product);
  void describe(const Product& product, Recipe& recipe);
  void choose_algorithm(const Product& product, Recipe& recipe);
  void choose_fastest(const Product& product, Recipe& recipe, std::span<const cublasLtMatmulHeuristicResult_t> found);
  cublasStatus_t try_recipe(const Product& product, Recipe recipe, std::byte* out);
  void run(const Product& product, const Recipe& recipe);
  bool sums_pay_inside(const Product& product, const Product& without_sums);
  bool is_capturing();

  Context& context_;
  std::map<Key, Recipe> recipes_;
  std::map<Key, bool> sums_inside_;  // whether the product makes the sums faster than a kernel of its own
};

// Of any types and strides, slowly.
void multiply_plainly(Context& context, const Product& product);
// Adds the vector to every row.
void add_to_rows(Context& context, const Vector& x, const Matrix& rows);
// sums = (or +=) the sums of x's columns over its rows.
void sum_rows(Context& context, const Matrix& x, const Vector& sums, Into into);

}  // namespace weft::cuda
