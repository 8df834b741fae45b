#include <tandem/io/json.h>

#include <tandem/tests/support/program_locale.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::io::is_valid_utf8;
using td::io::json_quoted;
using td::io::JsonValue;
using td::testing::error_text;

namespace {

/// Records every token with its depth and position.
class Recorder : public td::io::JsonHandler {
 public:
  using JsonHandler::JsonHandler;
  std::vector<std::string> tokens;

 private:
  void key(std::string name) override { add("key ", name); }
  void value(JsonValue value) override {
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, td::io::JsonObject>) {
            add("{");
          } else if constexpr (std::is_same_v<T, td::io::JsonArray>) {
            add("[");
          } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
            add("null");
          } else if constexpr (std::is_same_v<T, std::string>) {
            add("string ", v);
          } else if constexpr (std::is_same_v<T, double>) {
            add("double ", v);
          } else if constexpr (std::is_same_v<T, bool>) {
            add("bool ", v);
          } else {
            add(std::is_signed_v<T> ? "int64 " : "uint64 ", v);
          }
        },
        value);
  }
  void end() override { add("end"); }

  template <class... Args>
  void add(const Args&... args) {
    tokens.push_back(td::str(depth(), "@", position(), " ", args...));
  }
};

std::vector<std::string> tokens_of(const std::string& text) {
  Recorder recorder("text, ", text);
  recorder.parse();
  return recorder.tokens;
}

std::string parse_error(const std::string& text) {
  return error_text<td::IoError>([&] { tokens_of(text); });
}

/// The error for the value of an object's only key.
std::string value_error(const std::string& value) { return parse_error("{\"a\":" + value + "}"); }

using Tokens = std::vector<std::string>;

TEST(Json, HandlerReceivesTokensInOrder) {
  EXPECT_EQ(tokens_of(R"( {"a": [null, true, {}], "b": "x", "c": 2.5e1} )"),
            (Tokens{"0@2 {", "1@5 key a", "1@8 [", "2@12 null", "2@18 bool true", "2@21 {", "2@22 end", "1@23 end",
                    "1@28 key b", "1@33 string x", "1@38 key c", "1@46 double 25", "0@46 end"}));
  EXPECT_EQ(tokens_of(R"({"\u0041\ud83d\ude00\/\n\"\\\u0000":""})"),
            (Tokens{"0@1 {", std::string("1@35 key A\xf0\x9f\x98\x80/\n\"\\", 18) + '\0', "1@38 string ", "0@39 end"}));
}

TEST(Json, IntegersKeepTheirSignAndAllBits) {
  EXPECT_EQ(tokens_of("{\"a\":[0,-0,9223372036854775807,-9223372036854775808]}"),
            (Tokens{"0@1 {", "1@4 key a", "1@6 [", "2@8 uint64 0", "2@11 int64 0", "2@31 uint64 9223372036854775807",
                    "2@52 int64 -9223372036854775808", "1@52 end", "0@53 end"}));
}

TEST(Json, NumbersDoNotDependOnTheLocale) {
  const td::testing::ProgramLocale locale;
  EXPECT_EQ(tokens_of("{\"a\":-2.5e1}"), (Tokens{"0@1 {", "1@4 key a", "1@12 double -25", "0@12 end"}));
}

TEST(Json, NumbersOutOfRangeAreRejected) {
  const std::string integer = "an integer is outside the range of 64 bits";
  EXPECT_EQ(value_error("9223372036854775808"), "text, byte 25: " + integer);
  EXPECT_EQ(value_error("-9223372036854775809"), "text, byte 26: " + integer);
  EXPECT_EQ(value_error("18446744073709551616"), "text, byte 26: " + integer);
  EXPECT_EQ(value_error("1e999"), "text, byte 11: a number is outside the range of double");
  EXPECT_EQ(value_error("-1e999"), "text, byte 12: a number is outside the range of double");
  EXPECT_EQ(value_error("1e-999"), "text, byte 12: a number is outside the range of double");
  EXPECT_EQ(value_error("-0.02e-322"), "text, byte 16: a number is outside the range of double");
  EXPECT_EQ(tokens_of("{\"a\":[0e-999,-0.0,4e-324,1.7976931348623157e308]}"),
            (Tokens{"0@1 {", "1@4 key a", "1@6 [", "2@13 double 0", "2@18 double -0", "2@25 double 4.94066e-324",
                    "2@48 double 1.79769e+308", "1@48 end", "0@49 end"}));
}

TEST(Json, DeepNestingDoesNotRecurse) {
  EXPECT_EQ(tokens_of("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}").size(), 200'003u);
}

TEST(Json, OtherTextsAreRejected) {
  EXPECT_EQ(parse_error(""), "text, byte 0: the JSON ends too early");
  EXPECT_EQ(parse_error(" "), "text, byte 1: the JSON ends too early");
  EXPECT_EQ(parse_error("[]"), "text, byte 1: expected an object, got an array");
  EXPECT_EQ(parse_error("3"), "text, byte 1: expected an object, got an integer that is not negative");
  EXPECT_EQ(parse_error("{"), "text, byte 1: the JSON ends too early");
  EXPECT_EQ(parse_error("{\"a\""), "text, byte 4: the JSON ends too early");
  EXPECT_EQ(parse_error("{\"a\":"), "text, byte 5: the JSON ends too early");
  EXPECT_EQ(parse_error("{\"a\":1"), "text, byte 6: the JSON ends too early");
  EXPECT_EQ(parse_error("{\"a\":1,"), "text, byte 7: the JSON ends too early");
  EXPECT_EQ(parse_error("{\"a\":[1"), "text, byte 7: the JSON ends too early");
  EXPECT_EQ(parse_error("{\"a\":1,}"), "text, byte 8: not valid JSON");
  EXPECT_EQ(parse_error("{\"a\":1 \"b\":2}"), "text, byte 10: not valid JSON");
  EXPECT_EQ(parse_error("{\"a\" 1}"), "text, byte 7: not valid JSON");
  EXPECT_EQ(parse_error("{a:1}"), "text, byte 2: not valid JSON");
  EXPECT_EQ(parse_error("{'a':1}"), "text, byte 2: not valid JSON");
  EXPECT_EQ(parse_error("{]"), "text, byte 2: not valid JSON");
  EXPECT_EQ(parse_error("{} x"), "text, byte 4: text follows the closing brace");
  EXPECT_EQ(parse_error("{}{}"), "text, byte 3: text follows the closing brace");
  EXPECT_EQ(parse_error("{}}"), "text, byte 3: text follows the closing brace");
  EXPECT_EQ(parse_error("{} // a comment"), "text, byte 4: text follows the closing brace");
  EXPECT_EQ(parse_error("{/* a comment */}"), "text, byte 2: not valid JSON");
  EXPECT_EQ(parse_error("\xef\xbb\xbf{}"), "text, byte 0: the text begins with a byte order mark");
  EXPECT_EQ(parse_error("\xff\xfe{}"), "text, byte 1: not valid JSON");
  EXPECT_EQ(parse_error("{\v}"), "text, byte 2: not valid JSON");
}

TEST(Json, InvalidLiteralsAndNumbersAreRejected) {
  EXPECT_EQ(value_error("nul"), "text, byte 9: not valid JSON");
  EXPECT_EQ(value_error("True"), "text, byte 6: not valid JSON");
  EXPECT_EQ(value_error("nan"), "text, byte 7: not valid JSON");
  EXPECT_EQ(value_error("Infinity"), "text, byte 6: not valid JSON");
  EXPECT_EQ(value_error("0x1"), "text, byte 7: not valid JSON");
  EXPECT_EQ(value_error("+1"), "text, byte 6: not valid JSON");
  EXPECT_EQ(value_error(".5"), "text, byte 6: not valid JSON");
  EXPECT_EQ(value_error("x"), "text, byte 6: not valid JSON");
  EXPECT_EQ(value_error("-"), "text, byte 7: not valid JSON");
  EXPECT_EQ(value_error("01"), "text, byte 8: not valid JSON");
  EXPECT_EQ(value_error("-01"), "text, byte 9: not valid JSON");
  EXPECT_EQ(value_error("1."), "text, byte 8: not valid JSON");
  EXPECT_EQ(value_error("1e"), "text, byte 8: not valid JSON");
  EXPECT_EQ(value_error("1e+"), "text, byte 9: not valid JSON");
  EXPECT_EQ(value_error("1.e1"), "text, byte 8: not valid JSON");
}

TEST(Json, NulIsRejectedEverywhere) {
  for (const size_t at : {0, 1, 3, 6, 7}) {
    std::string text = "{\"ab\":1}";
    text.insert(at, 1, '\0');
    EXPECT_EQ(parse_error(text), "text, byte " + std::to_string(at) + ": a NUL is not JSON");
  }
  EXPECT_EQ(parse_error(std::string("{}\0", 3)), "text, byte 2: a NUL is not JSON");
  EXPECT_EQ(parse_error(std::string("{}\0{", 4)), "text, byte 2: a NUL is not JSON");
}

TEST(Json, InvalidStringsAreRejected) {
  EXPECT_EQ(value_error("\"\n\""), "text, byte 7: not valid JSON");
  EXPECT_EQ(value_error("\"\x1f\""), "text, byte 7: not valid JSON");
  EXPECT_EQ(value_error("\"\\x\""), "text, byte 8: not valid JSON");
  EXPECT_EQ(value_error("\"\\u12g4\""), "text, byte 11: not valid JSON");
  EXPECT_EQ(value_error("\"\\udc00\""), "text, byte 12: not valid JSON");
  EXPECT_EQ(value_error("\"\\ud800\""), "text, byte 13: not valid JSON");
  EXPECT_EQ(value_error("\"\\ud800\\u0041\""), "text, byte 18: not valid JSON");
  EXPECT_EQ(parse_error("{\"a\":\"x"), "text, byte 7: the JSON ends too early");
  EXPECT_EQ(parse_error("{\"a\":\"x\\"), "text, byte 8: the JSON ends too early");
}

/// Invalid UTF-8: wrong lead and continuation bytes, overlong forms, a surrogate, codes above U+10FFFF, truncation.
const std::vector<std::string> kInvalidUtf8 = {"\xff",
                                               "\x80",
                                               "\xc0\xaf",
                                               "\xe0\x80\x80",
                                               "\xed\xa0\x80",
                                               "\xc3",
                                               "\xf4\x90\x80\x80",
                                               "\xf5\x80\x80\x80",
                                               "\xf0\x80\x80\x80",
                                               "\xe2\x82",
                                               "\xe2\x28\xa1"};

TEST(Json, InvalidUtf8IsRejected) {
  for (const std::string& bytes : kInvalidUtf8) {
    EXPECT_NE(value_error("\"" + bytes + "\"").find("not valid JSON"), std::string::npos);
    EXPECT_FALSE(is_valid_utf8(bytes));
    EXPECT_FALSE(is_valid_utf8("text " + bytes + " text"));
  }
  for (const std::string text :
       {"", "text", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << text;
    EXPECT_TRUE(tokens_of("{\"a\":\"" + text + "\"}")[2].ends_with(" string " + text)) << text;
  }
}

TEST(Json, QuotedEscapesOnlyWhatJsonRequires) {
  EXPECT_EQ(json_quoted("\"\\/\b\f\n\r\t\x01\x1f\x7f\xc3\xa9"), R"("\"\\/\b\f\n\r\t\u0001\u001f)"
                                                                "\x7f\xc3\xa9\"");
  EXPECT_EQ(json_quoted(std::string("\0", 1)), R"("\u0000")");
}

TEST(Json, ValuesOfAnotherTypeAreNamed) {
  struct Strings : td::io::JsonHandler {
    using JsonHandler::JsonHandler;
    void key(std::string) override {}
    void value(JsonValue value) override {
      if (depth() == 1) get<std::string>(value, "'a': ");
    }
    void end() override {}
  };
  const auto error = [](const std::string& value) {
    const std::string text = "{\"a\":" + value + "}";
    return error_text<td::IoError>([&] { Strings("text, ", text).parse(); });
  };
  EXPECT_EQ(error("null"), "text, byte 9: 'a': expected a string, got null");
  EXPECT_EQ(error("true"), "text, byte 9: 'a': expected a string, got a boolean");
  EXPECT_EQ(error("7"), "text, byte 7: 'a': expected a string, got an integer that is not negative");
  EXPECT_EQ(error("-7"), "text, byte 8: 'a': expected a string, got a negative integer");
  EXPECT_EQ(error("7.0"), "text, byte 9: 'a': expected a string, got a floating-point number");
  EXPECT_EQ(error("{}"), "text, byte 6: 'a': expected a string, got an object");
  EXPECT_EQ(error("[]"), "text, byte 6: 'a': expected a string, got an array");
}

}  // namespace
