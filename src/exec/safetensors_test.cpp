// The format by hand: 8 bytes of length, the header, the numbers.
#include "exec/safetensors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/test_folder.hpp"

namespace weft {
namespace {

using test::error_of;
using test::ScratchFolder;

std::string file_with(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}

TEST(Safetensors, ComeBackAsTheyWere) {
  const ScratchFolder folder("round");
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<NamedTensor> tensors{{"b", {2, 3}, {1, -2, 3.5F, 0, -0.0F, 1e-45F}},
                                         {"a", {}, {inf}},
                                         {"empty", {0, 7}, {}},
                                         {"a \"quoted\" näme", {1}, {-3e38F}}};
  write_safetensors(folder.path() / "file", tensors);
  const std::vector<NamedTensor> again = read_safetensors(folder.path() / "file");
  ASSERT_EQ(again.size(), tensors.size());
  for (const NamedTensor& expected : tensors) {
    const auto found = std::ranges::find(again, expected.name, &NamedTensor::name);
    ASSERT_NE(found, again.end()) << expected.name;
    EXPECT_EQ(found->shape, expected.shape);
    ASSERT_EQ(found->data.size(), expected.data.size());
    EXPECT_EQ(std::memcmp(found->data.data(), expected.data.data(), expected.data.size() * 4), 0);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);  // nothing beside it
}

TEST(Safetensors, AreWrittenAsTheFormatSays) {
  const ScratchFolder folder("format");
  write_safetensors(folder.path() / "file", std::vector<NamedTensor>{{"x", {2}, {1.0F, 2.0F}}, {"y", {1, 1}, {-1.0F}}});
  const std::string text = folder.read("file");
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ(length % 8, 0U);
  EXPECT_EQ(nlohmann::json::parse(text.substr(8, length)),
            nlohmann::json::parse(R"({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                                      "y": {"dtype": "F32", "shape": [1, 1], "data_offsets": [8, 12]}})"));
  // 1.0f is 0x3f800000, 2.0f 0x40000000, -1.0f 0xbf800000; little endian.
  EXPECT_EQ(text.substr(8 + length), std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x80\xbf", 12));
}

TEST(Safetensors, FromOtherWritersAreRead) {
  // Metadata, keys in any order, a space in front.
  const ScratchFolder folder("others");
  folder.write("file", file_with(R"( {"z": {"data_offsets":[4,8],"shape":[1],"dtype":"F32"},
      "__metadata__": {"format":"pt"}, "y": {"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})",
                                 std::string("\0\0\x80\x3f\0\0\0\x40", 8)));
  const auto tensors = read_safetensors(folder.path() / "file");
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "y");
  EXPECT_EQ(tensors[0].data, std::vector<float>{1.0F});
  EXPECT_EQ(tensors[1].data, std::vector<float>{2.0F});
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const ScratchFolder folder("truncated");
  write_safetensors(folder.path() / "whole", std::vector<NamedTensor>{{"x", {2}, {1.0F, 2.0F}}, {"y", {1}, {3.0F}}});
  const std::string whole = folder.read("whole");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.write("part", whole.substr(0, size));
    const std::string message = error_of([&] { read_safetensors(path); });
    EXPECT_TRUE(message.starts_with(path + ": ")) << size << ": " << message;
  }
}

TEST(Safetensors, SayWhatIsWrongWithAFile) {
  const ScratchFolder folder("wrong");
  const auto message = [&](const std::string& text) {
    const std::string path = folder.write("file", text);
    const std::string error = error_of([&] { read_safetensors(path); });
    EXPECT_TRUE(error.starts_with(path + ": ")) << error;
    return error.substr(std::min(error.size(), path.size() + 2));
  };
  const std::string four(4, '\0');
  const auto one = [&](const std::string& fields) { return message(file_with("{\"x\":{" + fields + "}}", four)); };
  EXPECT_EQ(message("abc"), "3 bytes are too few for a safetensors file");
  EXPECT_EQ(message(std::string(8, '\xff') + "{}"),
            "a header of 18446744073709551615 bytes is not in 0..2: truncated, or no safetensors file");
  EXPECT_EQ(message(file_with("{\"x\":", "")), "the header is no JSON: no safetensors file");
  EXPECT_EQ(message(file_with("[]", "")), "the header is no JSON object: no safetensors file");
  EXPECT_EQ(message(file_with("{\"x\": 1}", "")), "tensor 'x' is no JSON object");
  EXPECT_EQ(one(R"("shape":[1],"data_offsets":[0,4])"), "tensor 'x' has no dtype");
  EXPECT_EQ(one(R"("dtype":"BF16","shape":[2],"data_offsets":[0,4])"), "tensor 'x' has dtype BF16; only F32 is read");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"),
            "tensor 'x': 'shape' is no list of whole numbers from 0 on");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"),
            "tensor 'x': 'shape' is no list of whole numbers from 0 on");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[1])"), "tensor 'x': 'data_offsets' is no list of whole numbers from 0 on");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,2,4])"), "tensor 'x': data_offsets are not two numbers");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "tensor 'x': 4 bytes of data, its shape needs 8");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"),
            "tensor 'x': bytes 0..8 are not within the 4 bytes of data: truncated?");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"),
            "tensor 'x': bytes 4..0 are not within the 4 bytes of data: truncated?");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])"),
            "tensor 'x': the size does not fit in 63 bits");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[0],"data_offsets":[4,4])"),
            "tensor 'x' begins at byte 4 of the data, not at 0 where the one before it ends");
  EXPECT_EQ(message(file_with("{}", four)), "4 bytes follow the last tensor");
  EXPECT_EQ(message(file_with(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                                  "x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                              four)),
            "tensor 'x' is there twice");
}

TEST(Safetensors, NameAFileThatCannotBeOpened) {
  const ScratchFolder folder("absent");
  EXPECT_EQ(error_of([&] { read_safetensors(folder.path() / "none"); }),
            folder.file("none") + ": cannot be read: No such file or directory");
  EXPECT_EQ(error_of([&] { read_safetensors(folder.path()); }), folder.path().string() + ": is a folder, not a file");
  EXPECT_EQ(error_of([&] { write_safetensors(folder.path() / "no" / "such", {}); }),
            folder.file("no/such") + ": cannot be written: No such file or directory");
}

}  // namespace
}  // namespace weft
