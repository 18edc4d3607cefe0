// Matrix products through ATen, straight into the caller's memory.
#pragma once

#include "kernels/matrix.hpp"

namespace weft::aten {

enum class Turned : bool { no, yes };  // yes: the matrix is read transposed

struct Factor {
  Matrix matrix;
  Turned turned = Turned::no;
};

// out = scale a b, or out += scale a b.
void multiply(const Factor& a, const Factor& b, const Matrix& out, Into into, double scale = 1);

// Replaces a symmetric matrix, whose rows follow each other without gaps, by its inverse, by Cholesky. Returns false
// where it is not positive definite.
bool invert_symmetric(const Matrix& x);

}  // namespace weft::aten
