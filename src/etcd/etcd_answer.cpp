#include "etcd/etcd_answer.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace dlock {
namespace {

using nlohmann::json;

/// A value of 200 000 bytes has 266 668 bytes in base64.
constexpr std::size_t longest_word = 300'000;
/// The JSON library quotes white space in its errors, with eight bytes for each line feed.
constexpr std::size_t longest_space = 4'096;
/// The limit of an error message from etcd.
constexpr std::size_t longest_message = 1'000;

// The allocations of the JSON library on a 64-bit host, rounded up like malloc does.

/// An element of an array that grows by doubling, and of the list that the library needs to free
/// it.
constexpr std::size_t cost_of_value = 96;
constexpr std::size_t cost_of_array = 32;
constexpr std::size_t cost_of_object = 64;
constexpr std::size_t cost_of_member = 96;
constexpr std::size_t cost_of_string = 48;

/// The heap memory of a text, beyond the bytes inside std::string itself.
std::size_t cost_of_text(const std::string& text) {
  constexpr std::size_t inside = 15, head_and_rounding = 24;
  return text.size() <= inside ? 0 : text.size() + head_and_rounding;
}

/// Adds up the memory that a text will need without storing any of it, and stops at the limit.
class WithinRoom final : public nlohmann::json_sax<json> {
 public:
  explicit WithinRoom(AnswerRoom& room) : room_(room) {}

  bool null() override { return room_.take(cost_of_value); }
  bool boolean(bool) override { return room_.take(cost_of_value); }
  bool number_integer(number_integer_t) override { return room_.take(cost_of_value); }
  bool number_unsigned(number_unsigned_t) override { return room_.take(cost_of_value); }
  bool number_float(number_float_t, const string_t&) override { return room_.take(cost_of_value); }
  bool string(string_t& text) override {
    return room_.take(cost_of_value + cost_of_string + cost_of_text(text));
  }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& name) override { return room_.take(cost_of_member + cost_of_text(name)); }
  bool start_object(std::size_t) override { return deeper(cost_of_object); }
  bool start_array(std::size_t) override { return deeper(cost_of_array); }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;
  }

 private:
  bool deeper(std::size_t cost) { return ++depth_ <= 16 && room_.take(cost_of_value + cost); }

  AnswerRoom& room_;
  int depth_ = 0;
};

/// The end of the word that begins at `at`: a quoted string, white space, or the text between them.
std::size_t end_of_word(std::string_view text, std::size_t at) {
  constexpr std::string_view spaces = " \t\r\n";
  constexpr std::string_view ends = " \t\r\n\"{}[],:";
  const auto or_end = [&](std::size_t found) { return std::min(found, text.size()); };
  if (spaces.find(text[at]) != std::string_view::npos) {
    return or_end(text.find_first_not_of(spaces, at));
  }
  if (text[at] != '"') return or_end(text.find_first_of(ends, at + 1));
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return or_end(at + 1);
}

EtcdAnswer error_from(const json& error, const std::string& message) {
  EtcdAnswer answer;
  for (const char* name : {"code", "grpc_code"}) {
    const auto code = error.find(name);
    if (code != error.end() && code->is_number_integer()) {
      answer.code = static_cast<EtcdCode>(code->get<int>());
    }
  }
  if (answer.code == EtcdCode::ok) answer.code = EtcdCode::unavailable;
  answer.message = message.substr(0, longest_message);
  return answer;
}

const std::string& message_in(const json& error) {
  static const std::string none;
  const auto found = error.find("message");
  const bool is_there = found != error.end() && found->is_string();
  return is_there ? found->get_ref<const std::string&>() : none;
}

}  // namespace

bool AnswerRoom::take(std::size_t bytes) {
  exceeded_ = exceeded_ || bytes > left_;
  left_ -= exceeded_ ? left_ : bytes;
  return !exceeded_;
}

bool has_bounded_words(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_word(text, at);
    const bool is_space = static_cast<unsigned char>(text[at]) <= ' ';
    if (end - at > (is_space ? longest_space : longest_word)) return false;
    at = end;
  }
  return true;
}

json parse_within(std::string_view text, AnswerRoom& room) {
  json none(json::value_t::discarded);
  if (!has_bounded_words(text)) {
    room.take(SIZE_MAX);
    return none;
  }
  WithinRoom within(room);
  if (!json::sax_parse(text, &within)) return none;
  return json::parse(text, nullptr, false);
}

std::optional<EtcdAnswer> parse_answer(std::string_view text, AnswerRoom& room) {
  json parsed = parse_within(text, room);
  if (!parsed.is_object()) return std::nullopt;
  const auto error = parsed.find("error");
  if (error != parsed.end() && error->is_object()) return error_from(*error, message_in(*error));
  if (error != parsed.end() && error->is_string()) {
    return error_from(parsed, error->get_ref<const std::string&>());
  }
  // An error of etcd 3.6 has no field `error`.
  const auto code = parsed.find("code");
  if (error == parsed.end() && code != parsed.end() && code->is_number_integer()) {
    return error_from(parsed, message_in(parsed));
  }
  const auto result = parsed.find("result");
  EtcdAnswer answer;
  const bool is_of_stream = result != parsed.end() && result->is_object();
  answer.fields = std::move(is_of_stream ? *result : parsed);
  return answer;
}

}  // namespace dlock
