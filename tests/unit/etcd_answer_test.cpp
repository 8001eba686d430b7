// The memory limits for an answer of etcd, checked before it is parsed.

#include "etcd/etcd_answer.hpp"

#include <doctest/doctest.h>
#include <malloc.h>

#include "etcd/etcd_json.hpp"

namespace dlock::test {
namespace {

std::string repeated(std::size_t times, const std::string& part) {
  std::string all;
  all.reserve(times * part.size());
  for (std::size_t i = 0; i < times; ++i) all += part;
  return all;
}

/// The JSON `{"kvs":[PART,PART,...]}`.
std::string list_of(std::size_t times, const std::string& part) {
  return R"({"kvs":[)" + repeated(times - 1, part + ",") + part + "]}";
}

TEST_CASE("etcd: a page of 500 keys has room, and so has the largest record with all its lives") {
  AnswerRoom room;
  const std::string key =
      R"({"key":"ZGxvY2s6azphCjAxMjM0NTY3ODlhYmNkZWY=","create_revision":"123456789",)"
      R"("mod_revision":"123456789","version":"1","lease":"1234567890123456789","value":")";
  const auto page = parse_answer(list_of(500, key + std::string(2'000, 'A') + "\"}"), room);
  REQUIRE(page);
  CHECK(range_in(page->fields).entries.size() == 500);
  AnswerRoom another;
  const std::string record = key + std::string(266'668, 'A') + "\"}";
  std::string lives = list_of(1'000, key + "\"}");
  const auto whole = parse_answer(lives.insert(lives.find('[') + 1, record + ","), another);
  REQUIRE(whole);
  CHECK(range_in(whole->fields).entries.at(0).value.size() == 200'001);
  CHECK(!another.exceeded());
}

TEST_CASE("etcd: an answer of many small parts that would take much memory is refused") {
  for (const char* part : {"7", "[]", "{}", "[[]]", R"("")", R"({"a":0})", R"({"key":"YQ=="})",
                           R"("0123456789abcdef")", "1e5", "null"}) {
    CAPTURE(part);
    AnswerRoom room;
    CHECK(!parse_answer(list_of(100'000, part), room));
    CHECK(room.exceeded());
  }
  std::string members = "{";
  for (int i = 0; i < 100'000; ++i) members += "\"" + std::to_string(i) + "\":0,";
  AnswerRoom room;
  CHECK(!parse_answer(members + R"("":0})", room));
  CHECK(room.exceeded());
}

TEST_CASE("etcd: answers that are kept together have one room") {
  const std::string half = list_of(15'000, "{}");
  AnswerRoom room;
  CHECK(parse_answer(half, room));
  CHECK(!parse_answer(half, room));
  CHECK(room.exceeded());
  // After that, even a small answer exceeds the room.
  CHECK(!parse_answer("{}", room));
}

TEST_CASE("etcd: an answer that is nested deeper than etcd's is none") {
  AnswerRoom room;
  const std::string open = R"({"a":)";
  CHECK(parse_answer(open + std::string(8, '[') + std::string(8, ']') + "}", room));
  CHECK(
      !parse_answer(open + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}", room));
  CHECK(!room.exceeded());
}

TEST_CASE("etcd: words and white space have bounds, and strings may hold what ends other words") {
  CHECK(has_bounded_words(""));
  CHECK(has_bounded_words("{\"a\": [1, true, \"x\"]}\n"));
  CHECK(has_bounded_words(repeated(100'000, R"("\"{}[] ",)")));
  for (const std::string unit : {"x", "\\\"", "\\\\", "[", "\n", "\x01", "\xff"}) {
    CAPTURE(unit);
    CHECK(has_bounded_words("{\"a\":\"" + repeated(100'000, unit) + "\"}"));
    CHECK(!has_bounded_words("{\"a\":\"" + repeated(400'000, unit) + "\"}"));
    CHECK(!has_bounded_words("{\"a\":\"" + repeated(400'000, unit)));
  }
  CHECK(!has_bounded_words("[" + std::string(400'000, '1') + "]"));
  for (const char space : {' ', '\n', '\t', '\r'}) {
    CHECK(has_bounded_words("[" + std::string(4'000, space) + "]"));
    CHECK(!has_bounded_words("[" + std::string(5'000, space) + "]"));
  }
  for (const char* end : {"\"", "\"\\", "\"a\\"}) CHECK(has_bounded_words(end));
}

/// The allocated memory at present, at least.
std::size_t allocated() { return mallinfo2().uordblks + mallinfo2().hblkhd; }

TEST_CASE("etcd: no answer that has room takes more memory than it was reckoned to take") {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const std::string long_text = "\"" + std::string(200'000, 'x') + "\"";
  for (const std::string& part :
       {std::string("7"), std::string("[]"), std::string("{}"), std::string("[[],[7]]"),
        std::string(R"({"a":0,"create_revision":"0123456789abcdef","":{}})"), long_text}) {
    CAPTURE(part.substr(0, 20));
    for (std::size_t many = 1;; many += 1 + many / 8) {
      const std::string text = list_of(many, part);
      AnswerRoom room;
      const std::size_t before = allocated();
      const auto answer = parse_answer(text, room);
      if (!answer) break;
      CHECK(allocated() - before <= AnswerRoom::whole);
    }
  }
#endif
}

TEST_CASE("etcd: of an error's message a sentence is kept") {
  AnswerRoom room;
  const auto error =
      parse_answer(R"({"code":5,"message":")" + std::string(200'000, 'x') + "\"}", room);
  REQUIRE(error);
  CHECK(error->message.size() == 1'000);
}

}  // namespace
}  // namespace dlock::test
