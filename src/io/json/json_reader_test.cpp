#include "io/json/json_reader.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace weft {
namespace {

using nlohmann::json;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(ParseJson, NamesTheFileAndTheByteOfABadText) {
  // The third character is where an object's key had to stand.
  const std::string message = message_of([] { parse_json("{ 1}", "a.json"); });
  EXPECT_EQ(message.rfind("a.json: not JSON at byte 3: ", 0), 0U) << message;
  for (const char* bad : {"", " ", "{", "[1,", "{\"a\":}", "nul", "\"\xff\"", "1e999", "{} {}"}) {
    EXPECT_EQ(message_of([&] { parse_json(bad, "a.json"); }).rfind("a.json: not ", 0), 0U) << bad;
  }
}

TEST(ParseJson, SaysInItsOwnWordsThatANumberIsTooLarge) {
  EXPECT_EQ(message_of([] { parse_json(R"({"a": -1e400})", "a.json"); }),
            "a.json: not usable JSON: number -1e400 is beyond 1.8e+308, the largest that can be read");
}

// The reason is the library's and stands there whole; only what it quotes of the file is cut.
TEST(ParseJson, TellsLineColumnAndTheWholeReason) {
  const std::string literal = message_of([] { parse_json("{\n  \"a\": tru}", "a.json"); });
  // The brace, which no literal goes on with, is the 11th character of the second line and the 13th of all.
  EXPECT_EQ(literal.rfind("a.json: not JSON at byte 13: parse error at line 2, column 11: syntax error while parsing "
                          "value - invalid literal; last read: ",
                          0),
            0U)
      << literal;
  const std::string text = message_of([] { parse_json("{\"a\": \"" + std::string(1000, 'x'), "a.json"); });
  EXPECT_NE(text.find("missing closing quote"), std::string::npos) << text;
  EXPECT_LT(text.size(), 300U);
}

TEST(ParseJson, RefusesNestingBeyondSixtyFourLevels) {
  const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64), "a.json"));
  EXPECT_EQ(message_of([&] { parse_json(nested(65), "a.json"); }),
            "a.json: not usable JSON at byte 65: nested more than 64 levels deep");
  EXPECT_THROW(parse_json(std::string(10'000'000, '['), "a.json"), Error);
}

TEST(ParseJson, BracketsInsideStringsAreNotNesting) {
  const std::string text = "[\"\\\"" + std::string(100, '[') + "\"]";
  EXPECT_EQ(parse_json(text, "a.json")[0].get<std::string>().size(), 101U);
}

TEST(JsonObject, ReadsEveryTypeAndFallsBackOnAbsentOrNull) {
  const json value = parse_json(R"({"i": -3, "x": 2, "s": "hi", "b": true, "none": null, "list": [1, 2],
                                    "reals": [0.5, 1], "words": ["a"], "inner": {"k": 7}, "rows": [{"k": 1}]})",
                                "a.json");
  const JsonObject object(value, "a.json");
  EXPECT_EQ(object.integer("i", -3, -3), -3);
  EXPECT_EQ(object.integer_or("none", 5, 0), 5);
  EXPECT_EQ(object.integer_or("absent", 5, 0), 5);
  EXPECT_EQ(object.number("x", 0), 2.0);
  EXPECT_EQ(object.number_or("none", 0.25, 0), 0.25);
  EXPECT_EQ(object.string("s"), "hi");
  EXPECT_EQ(object.string_or("absent", "ho"), "ho");
  EXPECT_TRUE(object.boolean("b"));
  EXPECT_TRUE(object.boolean_or("none", true));
  EXPECT_EQ(object.integers("list", 1, 2), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(object.numbers("reals", 0), (std::vector<double>{0.5, 1}));
  EXPECT_EQ(object.strings("words"), std::vector<std::string>{"a"});
  EXPECT_EQ(object.object("inner").integer("k", 0), 7);
  EXPECT_EQ(object.objects("rows").at(0).integer("k", 0), 1);
  EXPECT_FALSE(object.has("none"));
  EXPECT_TRUE(object.is_null("none"));
  EXPECT_FALSE(object.is_null("absent"));
}

TEST(JsonObject, MessagesNameFilePlaceKeyValueAndWhatIsAllowed) {
  const json value = parse_json(R"({"i": 9, "f": 4.0, "s": "x", "none": null, "list": [1, "y"],
                                    "rows": [{}, {"k": true}], "big": 18446744073709551615})",
                                "a.json");
  const JsonObject object(value, "a.json");
  const auto said = [&](const std::function<void(const JsonObject&)>& action) {
    return message_of([&] { action(object); });
  };
  EXPECT_EQ(said([](const JsonObject& o) { o.integer("i", 0, 7); }),
            "a.json: key 'i': value 9 is not an integer in 0..7");
  EXPECT_EQ(said([](const JsonObject& o) { o.integer("i", 10); }),
            "a.json: key 'i': value 9 is not an integer of at least 10");
  EXPECT_EQ(said([](const JsonObject& o) { o.integer("f", 0); }),
            "a.json: key 'f': value 4.0 is not an integer of at least 0");
  EXPECT_EQ(said([](const JsonObject& o) { o.integer("big", 0); }),
            "a.json: key 'big': value 18446744073709551615 is not an integer of at least 0");
  EXPECT_EQ(said([](const JsonObject& o) { o.number("s", 0, 1); }),
            "a.json: key 's': value \"x\" is not a number in 0..1");
  EXPECT_EQ(said([](const JsonObject& o) { o.string("i"); }), "a.json: key 'i': value 9 is not a string");
  EXPECT_EQ(said([](const JsonObject& o) { o.boolean("i"); }), "a.json: key 'i': value 9 is not true or false");
  EXPECT_EQ(said([](const JsonObject& o) { o.array("i"); }), "a.json: key 'i': value 9 is not an array");
  EXPECT_EQ(said([](const JsonObject& o) { o.integers("list", 0); }),
            "a.json: key 'list'[1]: value \"y\" is not an integer of at least 0");
  EXPECT_EQ(said([](const JsonObject& o) { o.objects("rows").at(1).string("k"); }),
            "a.json: rows[1]: key 'k': value true is not a string");
  EXPECT_EQ(said([](const JsonObject& o) { o.objects("list"); }), "a.json: list[0]: value 1 is not an object");
  EXPECT_EQ(said([](const JsonObject& o) { o.integer("absent", 0, 7); }),
            "a.json: key 'absent' is missing: an integer in 0..7 is needed");
  EXPECT_EQ(said([](const JsonObject& o) { o.string("none"); }), "a.json: key 'none': value null is not a string");
}

TEST(JsonObject, NeedsAnObject) {
  const json value = parse_json("[1]", "a.json");
  EXPECT_EQ(message_of([&] { JsonObject(value, "a.json"); }), "a.json: value [1] is not an object");
}

TEST(JsonObject, UnknownKeysAndNamesGetTheNearestSuggested) {
  const json value = parse_json(R"({"nodez": 4, "kind": "rinG"})", "a.json");
  const JsonObject object(value, "a.json");
  const std::array<std::string, 2> keys = {"nodes", "kind"};
  const std::array<std::string, 2> kinds = {"ring", "hypercube"};
  EXPECT_EQ(message_of([&] { object.allow_only(keys); }), "a.json: key 'nodez' is not known; did you mean 'nodes'?");
  EXPECT_EQ(message_of([&] { object.one_of("kind", kinds); }),
            "a.json: key 'kind': value 'rinG' is not known; did you mean 'ring'?");
  const std::array<std::string, 1> exact = {"rinG"};
  EXPECT_EQ(object.one_of("kind", exact), 0U);
}

TEST(JsonObject, LongValuesAreCutBetweenCharacters) {
  // 100 two-byte characters behind one quote: byte 80 falls inside a character.
  std::string text = "{\"s\": \"";
  for (int i = 0; i < 100; ++i) text += "\xc3\xa9";
  const json value = parse_json(text + "\"}", "a.json");
  const std::string message = message_of([&] { JsonObject(value, "a.json").integer("s", 0); });
  EXPECT_NO_THROW(json(message).dump());  // still valid UTF-8
  EXPECT_LT(message.size(), 200U);
}

}  // namespace
}  // namespace weft
