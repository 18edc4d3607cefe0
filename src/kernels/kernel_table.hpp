// The kernels as the module hands them over. libtorch takes more than a second to load, so it is linked to a module of
// its own that is opened at the first kernel; whoever only plans never waits for it.
#pragma once

#include "kernels/experts.hpp"
#include "kernels/kernels.hpp"

namespace weft {

struct KernelTable {
  const char* in_words;
  void (*use_threads)(int threads);  // of the calling thread

  decltype(&weft::linear) linear;
  decltype(&weft::linear_input_grad) linear_input_grad;
  decltype(&weft::linear_weight_grad) linear_weight_grad;
  decltype(&weft::norm) norm;
  decltype(&weft::norm_input_grad) norm_input_grad;
  decltype(&weft::norm_weight_grad) norm_weight_grad;
  decltype(&weft::dropout) dropout;
  decltype(&weft::dropout_input_grad) dropout_input_grad;
  decltype(&weft::attention) attention;
  decltype(&weft::attention_input_grad) attention_input_grad;
  decltype(&weft::gelu) gelu;
  decltype(&weft::gelu_input_grad) gelu_input_grad;
  decltype(&weft::swiglu) swiglu;
  decltype(&weft::swiglu_input_grad) swiglu_input_grad;
  decltype(&weft::add) add;
  decltype(&weft::embedding) embedding;
  decltype(&weft::embedding_weight_grad) embedding_weight_grad;
  decltype(&weft::positions_weight_grad) positions_weight_grad;
  decltype(&weft::cross_entropy) cross_entropy;
  decltype(&weft::cross_entropy_part) cross_entropy_part;
  decltype(&weft::cross_entropy_of_parts) cross_entropy_of_parts;
  decltype(&weft::cross_entropy_input_grad) cross_entropy_input_grad;
  decltype(&weft::gate) gate;
  decltype(&weft::gate_input_grad) gate_input_grad;
  decltype(&weft::dispatch_rows) dispatch_rows;
  decltype(&weft::dispatch_rows_input_grad) dispatch_rows_input_grad;
  decltype(&weft::combine_rows) combine_rows;
  decltype(&weft::combine_rows_input_grad) combine_rows_input_grad;
  decltype(&weft::expert_linear) expert_linear;
  decltype(&weft::expert_linear_input_grad) expert_linear_input_grad;
  decltype(&weft::expert_linear_weight_grad) expert_linear_weight_grad;
  decltype(&weft::adam) adam;
  decltype(&weft::sgd) sgd;
  decltype(&weft::square_sum) square_sum;
  decltype(&weft::fill) fill;
};

// What the module exports under this name, without mangling.
inline constexpr const char* kKernelTableSymbol = "weft_kernel_table";

}  // namespace weft
