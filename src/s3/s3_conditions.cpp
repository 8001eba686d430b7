#include "s3/s3_conditions.hpp"

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

/// No object has this ETag: an MD5 of zeros.
constexpr const char* if_other = "If-Match: \"00000000000000000000000000000000\"";

/// Whether the store refuses a request about a scratch object whose condition is false.
bool honours(S3Client& client, const char* method, const char* condition,
             const CallOptions& call_options) {
  const std::string key = client.place().folder + "/.dlock-trial-" + random_hex(8);
  const auto status_of = [&](const char* asked, const char* with) {
    return client.send_one({asked, key, {}, {}, with}, call_options).status;
  };
  status_of("PUT", "");
  const long status = status_of(method, condition);
  status_of("DELETE", "");
  return status == s3_conflict || status == s3_precondition_failed;
}

}  // namespace

void require_conditional_writes(S3Client& client, const CallOptions& call_options) {
  for (const char* condition : {"If-None-Match: *", if_other}) {
    if (honours(client, "PUT", condition, call_options)) continue;
    std::string_view name = condition;
    name = take_until(name, ':');
    throw_unavailable(client.name() + ": " + client.place().bucket + " does not honour " +
                      std::string(name) + ": two clients could hold one lock");
  }
}

void require_conditional_writes_once(S3Client& client, const CallOptions& call_options) {
  const std::string mark = client.place().folder + "/.dlock-conditional-writes";
  if (client.get(mark, call_options).status == s3_ok) return;
  require_conditional_writes(client, call_options);
  client.send_one({"PUT", mark, {}, "dlock has tried them: they are honoured\n"}, call_options);
}

bool deletes_under_condition(S3Client& client, const CallOptions& call_options) {
  return honours(client, "DELETE", if_other, call_options);
}

}  // namespace dlock
