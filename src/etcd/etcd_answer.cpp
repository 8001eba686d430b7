#include "etcd/etcd_answer.hpp"

#include <utility>

namespace dlock {
namespace {

using nlohmann::json;

/// The text of an error of etcd, for people.
constexpr std::size_t longest_message = 1'000;

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

std::optional<EtcdAnswer> parse_answer(std::string_view text) {
  json parsed = json::parse(text, nullptr, false);
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
