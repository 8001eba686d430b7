#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace dlock {

// A short answer can need much memory once parsed: `[[],[],...` needs fifty times its own size.
// That size is therefore computed before anything is stored.

/// The gRPC codes from etcd's gateway that dlock distinguishes.
enum class EtcdCode : int {
  ok = 0,
  unknown = 2,
  invalid_argument = 3,
  not_found = 5,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  unavailable = 14,
  unauthenticated = 16,
};

struct EtcdAnswer {
  EtcdCode code = EtcdCode::ok;
  std::string message{};  ///< of an error: not escaped, and cut if it is long
  nlohmann::json fields = nlohmann::json::object();
};

/// The memory for all parsed answers that are kept at the same time.
class AnswerRoom {
 public:
  static constexpr std::size_t whole = 4u << 20;
  /// Returns false if less than `bytes` is left; the room then counts as exceeded.
  bool take(std::size_t bytes);
  bool exceeded() const { return exceeded_; }

 private:
  std::size_t left_ = whole;
  bool exceeded_ = false;
};

/// Whether every word and every run of white space is short enough for the JSON library, which
/// keeps several copies of the current one.
bool has_bounded_words(std::string_view text);

/// Parses `text`, and takes the memory for it from `room`. Returns a discarded value if the text is
/// no JSON, is nested deeper than etcd's answers, or has no room.
nlohmann::json parse_within(std::string_view text, AnswerRoom& room);

/// Parses one answer of the gateway; a text that begins with `{"result"` or `{"error"` is a part of
/// a stream. Returns nothing if `text` is no answer, or if `room` is exceeded.
std::optional<EtcdAnswer> parse_answer(std::string_view text, AnswerRoom& room);

}  // namespace dlock
