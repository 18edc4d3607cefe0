// Row-major matrices are column-major ones turned, so cuBLASLt computes out^T = b^T a^T: its A is our b, its B our a.
#include "kernels/cuda/products.hpp"

#include <algorithm>

namespace weft::cuda {
namespace {

constexpr std::int64_t kWorkspace = 32 << 20;  // what cuBLASLt's documentation recommends for Hopper
constexpr int kCandidates = 8;
constexpr int kTimedRuns = 3;

cudaDataType_t type_of(const ElementPointer& data) {
  return data.type == ElementType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}
std::int64_t alignment_of(std::uintptr_t bits) {
  return bits == 0 ? 256 : static_cast<std::int64_t>(std::min<std::uintptr_t>(bits & (~bits + 1), 256));
}
template <class Tensor>
std::int64_t alignment_of(const Tensor& x) {
  return alignment_of(reinterpret_cast<std::uintptr_t>(x.data.address));
}
std::int64_t leading(const Matrix& x) {
  return std::max(x.row_stride.value / size_of(x.data.type).value, x.columns);
}

template <class T>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value), "describing a product");
}
template <class T>
void set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  check(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value), "describing a matrix");
}
template <class T>
void set(cublasLtMatmulPreferenceOpaque_t& wish, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(&wish, attribute, &value, sizeof value), "asking for a product");
}

cublasLtMatrixLayoutOpaque_t layout_of(const Matrix& x, const Batch& batch, std::int64_t stride) {
  cublasLtMatrixLayoutOpaque_t layout;
  check(cublasLtMatrixLayoutInit(&layout, type_of(x.data), static_cast<std::uint64_t>(x.columns),
                                 static_cast<std::uint64_t>(x.rows), leading(x)),
        "describing a matrix");
  if (batch.count > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch.count));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  return layout;
}

cublasLtEpilogue_t epilogue_of(const Product& product) {
  if (!product.sums.empty()) return CUBLASLT_EPILOGUE_BGRADB;
  return product.bias.empty() ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
}
// What the epilogue reads or writes beside the matrices.
const Vector& epilogue_vector(const Product& product) {
  return product.sums.empty() ? product.bias : product.sums;
}

cublasLtMatmulPreferenceOpaque_t wish_of(const Product& product) {
  cublasLtMatmulPreferenceOpaque_t wish;
  check(cublasLtMatmulPreferenceInit(&wish), "asking for a product");
  const auto alignment = [](const Matrix& x, std::int64_t batch_stride, std::int64_t count) {
    const std::int64_t offset = count > 1 ? batch_stride * size_of(x.data.type).value : 0;
    return static_cast<std::uint32_t>(std::min(alignment_of(x), alignment_of(static_cast<std::uintptr_t>(offset))));
  };
  const Batch& batch = product.batch;
  set(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspace));
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(product.b.matrix, batch.b, batch.count));
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(product.a.matrix, batch.a, batch.count));
  const std::uint32_t of_out = alignment(product.out, batch.out, batch.count);
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_out);
  // Nothing says how a bias is aligned; with the result, it is not taken to be better aligned than it is.
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
      std::min(of_out, static_cast<std::uint32_t>(alignment_of(epilogue_vector(product)))));
  return wish;
}

// Bytes from the first to behind the last element of all results.
std::int64_t extent_of(const Product& product) {
  const Matrix& out = product.out;
  const std::int64_t size = size_of(out.data.type).value;
  return (out.rows - 1) * out.row_stride.value + ((product.batch.count - 1) * product.batch.out + out.columns) * size;
}

bool has_usual_types(const Product& product) {
  const ElementType in = product.a.matrix.data.type;
  return in == product.b.matrix.data.type && (in == ElementType::bf16 || product.out.data.type == ElementType::fp32);
}

}  // namespace

bool Products::is_capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(context_.current_stream(), &status), "asking for the state of a stream");
  return status != cudaStreamCaptureStatusNone;
}

cublasStatus_t Products::try_recipe(const Product& product, Recipe recipe, std::byte* out) {
  const float scale = static_cast<float>(product.scale), keep = product.into == Into::add ? 1.0F : 0.0F;
  if (!epilogue_vector(product).empty())
    set(recipe.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(epilogue_vector(product).data.address));
  return cublasLtMatmul(context_.products(), &recipe.operation, &scale, product.b.matrix.data.address, &recipe.a,
                        product.a.matrix.data.address, &recipe.b, &keep, out, &recipe.out, out, &recipe.out,
                        &recipe.algorithm, context_.scratch<std::byte>(Scratch::workspace, kWorkspace), kWorkspace,
                        context_.current_stream());
}

void Products::run(const Product& product, const Recipe& recipe) {
  check(try_recipe(product, recipe, product.out.data.address), "multiplying matrices");
}

// Times each after a run that warms it up and shows whether it works at all. What a product adds to is left alone: the
// results go elsewhere.
void Products::choose_fastest(const Product& product, Recipe& recipe,
                              std::span<const cublasLtMatmulHeuristicResult_t> found) {
  DeviceMemory elsewhere;
  std::byte* out = product.out.data.address;
  if (product.into == Into::add) {
    elsewhere = DeviceMemory(extent_of(product) + 256);
    out = elsewhere.data() + reinterpret_cast<std::uintptr_t>(out) % 256;
  }
  const Event begin, end;
  Recipe tried = recipe;
  for (const cublasLtMatmulHeuristicResult_t& candidate : found) {
    tried.algorithm = candidate.algo;
    if (try_recipe(product, tried, out) != CUBLAS_STATUS_SUCCESS) continue;
    check(cudaEventRecord(begin.get(), context_.current_stream()), "recording an event");
    for (int i = 0; i < kTimedRuns; ++i) check(try_recipe(product, tried, out), "timing a product");
    check(cudaEventRecord(end.get(), context_.current_stream()), "recording an event");
    check(cudaEventSynchronize(end.get()), "timing a product");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "timing a product");
    if (recipe.milliseconds >= 0 && milliseconds / kTimedRuns >= recipe.milliseconds) continue;
    recipe.milliseconds = milliseconds / kTimedRuns;
    recipe.algorithm = candidate.algo;
  }
}

void Products::choose_algorithm(const Product& product, Recipe& recipe) {
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found{};
  int count = 0;
  cublasLtMatmulPreferenceOpaque_t wish = wish_of(product);
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(context_.products(), &recipe.operation, &recipe.a, &recipe.b, &recipe.out,
                                     &recipe.out, &wish, kCandidates, found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE || count == 0) return;
  check(status, "looking for a way to multiply matrices");
  recipe.algorithm = found[0].algo;
  if (is_capturing()) {
    recipe.exists = true;
    return;
  }
  choose_fastest(product, recipe, std::span(found).first(static_cast<std::size_t>(count)));
  recipe.exists = recipe.milliseconds >= 0;
}

const Products::Recipe& Products::recipe_for(const Product& product) {
  const Matrix &a = product.a.matrix, &b = product.b.matrix, &out = product.out;
  const Vector& beside = epilogue_vector(product);
  const Batch& batch = product.batch;
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  const Key key = {a.rows,
                   a.columns,
                   b.rows,
                   b.columns,
                   leading(a),
                   leading(b),
                   leading(out),
                   number(product.a.turned),
                   number(product.b.turned),
                   number(a.data.type),
                   number(out.data.type),
                   number(product.into),
                   number(epilogue_of(product)),
                   beside.empty() ? -1 : number(beside.data.type),
                   alignment_of(a) << 30 | alignment_of(b) << 20 | alignment_of(out) << 10 | alignment_of(beside),
                   batch.count,
                   batch.a,
                   batch.b,
                   batch.out};
  const auto [place, is_new] = recipes_.try_emplace(key);
  Recipe& recipe = place->second;
  if (!is_new && (recipe.is_final || is_capturing())) return recipe;
  describe(product, recipe);
  choose_algorithm(product, recipe);
  recipe.is_final = !is_capturing();
  return recipe;
}

void Products::describe(const Product& product, Recipe& recipe) {
  const Matrix &a = product.a.matrix, &b = product.b.matrix, &out = product.out;
  const Vector& beside = epilogue_vector(product);
  const Batch& batch = product.batch;
  check(cublasLtMatmulDescInit(&recipe.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  set(recipe.operation, CUBLASLT_MATMUL_DESC_TRANSA, product.b.turned == Turned::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(recipe.operation, CUBLASLT_MATMUL_DESC_TRANSB, product.a.turned == Turned::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(recipe.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product));
  if (context_.partition() != nullptr) {
    set(recipe.operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(context_.processors()));
  }
  if (!beside.empty()) {
    set(recipe.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(beside.data));
    set(recipe.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(beside.data.address));
  }
  recipe.a = layout_of(b, batch, batch.b);
  recipe.b = layout_of(a, batch, batch.a);
  recipe.out = layout_of(out, batch, batch.out);
}

// Decided once per shape, by time.
bool Products::sums_pay_inside(const Product& product, const Product& without_sums) {
  if (product.into == Into::add || product.batch.count > 1 || product.sums.data.type != product.out.data.type)
    return false;
  const Key key = {product.a.matrix.rows,     product.a.matrix.columns,
                   product.b.matrix.columns,  static_cast<std::int64_t>(product.out.data.type),
                   leading(product.a.matrix), leading(product.out)};
  const auto known = sums_inside_.find(key);
  if (known != sums_inside_.end()) return known->second && recipe_for(product).exists;
  if (is_capturing()) return false;
  bool& pays = sums_inside_[key] = false;
  const Recipe& inside = recipe_for(product);
  const Recipe& alone = recipe_for(without_sums);
  if (!inside.exists || inside.milliseconds < 0 || alone.milliseconds < 0) return false;
  const Event begin, end;
  sum_rows(context_, product.a.matrix, product.sums, Into::overwrite);
  check(cudaEventRecord(begin.get(), context_.current_stream()), "recording an event");
  sum_rows(context_, product.a.matrix, product.sums, Into::overwrite);
  check(cudaEventRecord(end.get(), context_.current_stream()), "recording an event");
  check(cudaEventSynchronize(end.get()), "timing sums");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "timing sums");
  return pays = inside.milliseconds < alone.milliseconds + milliseconds;
}

void Products::multiply(const Product& product) {
  if (product.out.rows == 0 || product.out.columns == 0) return;
  Product without_sums = product;
  without_sums.sums = {};
  if (!product.sums.empty()) {
    if (has_usual_types(product) && product.a.columns() > 0 && sums_pay_inside(product, without_sums)) {
      run(product, recipe_for(product));
      return;
    }
    sum_rows(context_, product.a.matrix, product.sums, product.into);
  }
  const bool is_usual = has_usual_types(product) && product.a.columns() > 0;
  const Recipe* const recipe = is_usual ? &recipe_for(without_sums) : nullptr;
  if (recipe != nullptr && recipe->exists) {
    run(without_sums, *recipe);
  } else if (is_usual && !product.bias.empty()) {
    without_sums.bias = {};
    multiply(without_sums);
    add_to_rows(context_, product.bias, product.out);
  } else {
    multiply_plainly(context_, without_sums);
  }
}

}  // namespace weft::cuda
