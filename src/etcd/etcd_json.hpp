#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "http/json_text.hpp"

namespace dlock {

// The fields of etcd's requests and answers (api/etcdserverpb/rpc.proto) as its gateway writes
// them: bytes are base64, 64-bit numbers are texts, and zero and false are omitted.

/// The gRPC codes in answers of etcd's gateway that dlock distinguishes.
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
  std::string message{};  ///< of an error: not escaped
  nlohmann::json fields = nlohmann::json::object();
};

/// Parses one answer, or one line of a stream, which has its answer in `result` or `error`. Returns
/// nothing if `text` is not a JSON object.
std::optional<EtcdAnswer> parse_answer(std::string_view text);

/// A key as etcd stores it.
struct EtcdEntry {
  std::string key;
  std::string value;
  std::int64_t lease = 0;
  std::int64_t version = 0;  ///< the revision of its last change
};

struct EtcdRange {
  std::vector<EtcdEntry> entries;
  bool more = false;
  std::int64_t count = 0;
};

/// The number in the field `name`; 0 if there is no such field.
std::int64_t number_in(const nlohmann::json& object, const char* name);
/// The seconds in the field `name`, at most dlock's longest span; 0 if missing or negative.
milliseconds span_in(const nlohmann::json& object, const char* name);
/// Whether the field exists and is true.
bool is_true(const nlohmann::json& object, const char* name);
/// The revision of the whole store, from the header of an answer.
std::int64_t revision_in(const nlohmann::json& answer);
EtcdRange range_in(const nlohmann::json& answer);
/// The answer to the range that is the first operation of a transaction.
EtcdRange first_range_in(const nlohmann::json& answer);

/// The range of keys from `from` up to, but not including, `end`.
nlohmann::json range_fields(std::string_view from, std::string_view end);
/// The first name after all names that begin with `prefix`.
std::string end_of_prefix(std::string_view prefix);

/// A transaction's condition: the last change of the key has `revision`; 0: there is no such key.
nlohmann::json unchanged_since(std::string_view key, std::int64_t revision);
nlohmann::json put_operation(std::string_view key, std::string_view value);
nlohmann::json delete_operation(std::string_view key);

/// A change that a watch reports.
struct EtcdEvent {
  std::string key;
  std::string value;
  std::int64_t revision = 0;
  bool deleted = false;
};
std::vector<EtcdEvent> events_in(const nlohmann::json& answer);

}  // namespace dlock
