#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace dlock {

// An answer of a few bytes can need much memory once it is read: `[[],[],...` needs fifty times its
// own. So a text is judged before anything of it is kept.

/// The codes of gRPC that etcd's gateway answers with, as far as they are told apart.
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
  std::string message{};  ///< of an error, unescaped, and cut if it is long
  nlohmann::json fields = nlohmann::json::object();
};

/// The memory for all answers that are kept at once, once they are read.
class AnswerRoom {
 public:
  static constexpr std::size_t whole = 4u << 20;
  /// False if there is not as much left; then nothing is, and `exceeded`.
  bool take(std::size_t bytes);
  bool exceeded() const { return exceeded_; }

 private:
  std::size_t left_ = whole;
  bool exceeded_ = false;
};

/// Whether each word and each stretch of white space is short enough for the JSON library, which
/// keeps several copies of the one that it reads.
bool has_bounded_words(std::string_view text);

/// Takes the memory that the library needs to keep `text` from `room`. Discarded if the text is no
/// JSON, or nested deeper than etcd's answers, or if there is no room for it.
nlohmann::json parse_within(std::string_view text, AnswerRoom& room);

/// One answer of the gateway's; one that begins with `{"result"` or `{"error"` is one of a stream.
/// Nothing if `text` is none, or if `room` is exceeded.
std::optional<EtcdAnswer> parse_answer(std::string_view text, AnswerRoom& room);

}  // namespace dlock
