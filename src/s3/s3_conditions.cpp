#include "s3/s3_conditions.hpp"

#include "base/error.hpp"
#include "base/random.hpp"

namespace dlock {
namespace {

/// No object has this ETag: an MD5 of zeros.
constexpr const char* if_other = "If-Match: \"00000000000000000000000000000000\"";

/// Whether the store refuses a request about a scratch object whose condition is false.
bool honours(S3Client& client, const char* method, const std::string& condition,
             const CallOptions& call_options) {
  const std::string key = client.place().folder + "/.dlock-trial-" + random_hex(8);
  client.send_one({"PUT", key}, call_options);
  const long status = client.send_one({method, key, {}, {}, condition}, call_options).status;
  client.send_one({"DELETE", key}, call_options);
  return status == s3_conflict || status == s3_precondition_failed;
}

}  // namespace

void require_conditional_writes(S3Client& client, const CallOptions& call_options) {
  for (const std::string condition : {"If-None-Match: *", if_other}) {
    if (honours(client, "PUT", condition, call_options)) continue;
    throw_unavailable(client.name() + ": " + client.place().bucket + " does not honour " +
                      condition.substr(0, condition.find(':')) +
                      ": two clients could hold one lock");
  }
}

void require_conditional_writes_once(S3Client& client, const CallOptions& call_options) {
  const std::string mark = client.place().folder + "/.dlock-conditional-writes";
  if (client.send_one({"GET", mark}, call_options).status == s3_ok) return;
  require_conditional_writes(client, call_options);
  client.send_one({"PUT", mark, {}, "dlock has tried them: they are honoured\n"}, call_options);
}

bool deletes_under_condition(S3Client& client, const CallOptions& call_options) {
  return honours(client, "DELETE", if_other, call_options);
}

}  // namespace dlock
