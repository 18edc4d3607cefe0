// What the module exports: its kernels in one table.
#include <torch/version.h>

#include "kernels/aten/experts_aten.hpp"
#include "kernels/aten/kernels_aten.hpp"
#include "kernels/kernel_table.hpp"

#define WEFT_TEXT_OF(number) #number
#define WEFT_TEXT(number) WEFT_TEXT_OF(number)

extern "C" __attribute__((visibility("default"))) const weft::KernelTable* weft_kernel_table() {
  namespace aten = weft::aten;
  static const weft::KernelTable table = {
      .in_words = "libtorch " WEFT_TEXT(TORCH_VERSION_MAJOR) "." WEFT_TEXT(TORCH_VERSION_MINOR) " (cpu)",
      .use_threads = aten::use_threads,
      .linear = aten::linear,
      .linear_input_grad = aten::linear_input_grad,
      .linear_weight_grad = aten::linear_weight_grad,
      .norm = aten::norm,
      .norm_input_grad = aten::norm_input_grad,
      .norm_weight_grad = aten::norm_weight_grad,
      .dropout = aten::dropout,
      .dropout_input_grad = aten::dropout_input_grad,
      .attention = aten::attention,
      .attention_input_grad = aten::attention_input_grad,
      .gelu = aten::gelu,
      .gelu_input_grad = aten::gelu_input_grad,
      .swiglu = aten::swiglu,
      .swiglu_input_grad = aten::swiglu_input_grad,
      .add = aten::add,
      .embedding = aten::embedding,
      .embedding_weight_grad = aten::embedding_weight_grad,
      .positions_weight_grad = aten::positions_weight_grad,
      .cross_entropy = aten::cross_entropy,
      .cross_entropy_part = aten::cross_entropy_part,
      .cross_entropy_of_parts = aten::cross_entropy_of_parts,
      .cross_entropy_input_grad = aten::cross_entropy_input_grad,
      .gate = aten::gate,
      .gate_input_grad = aten::gate_input_grad,
      .dispatch_rows = aten::dispatch_rows,
      .dispatch_rows_input_grad = aten::dispatch_rows_input_grad,
      .combine_rows = aten::combine_rows,
      .combine_rows_input_grad = aten::combine_rows_input_grad,
      .expert_linear = aten::expert_linear,
      .expert_linear_input_grad = aten::expert_linear_input_grad,
      .expert_linear_weight_grad = aten::expert_linear_weight_grad,
      .adam = aten::adam,
      .sgd = aten::sgd,
      .square_sum = aten::square_sum,
      .fill = aten::fill,
  };
  return &table;
}
