#include "s3/s3_client.hpp"

#include "base/error.hpp"
#include "base/text.hpp"
#include "net/digest.hpp"

namespace dlock {
namespace {

constexpr long http_no_content = 204, http_moved = 301, http_moved_for_now = 307,
               http_too_many = 429, http_broken = 500;

}  // namespace

HttpCall S3Client::signed_call(const S3Request& request, const AwsCredentials& own) const {
  const std::string query = request.query.empty() ? "" : "?" + request.query;
  HttpCall call{.to = server_.at(request.key + query),
                .body = request.body,
                .method = request.method,
                .fields = {"x-amz-content-sha256: " + sha256_hex(request.body)},
                .signed_for = "aws:amz:" + place_.region + ":s3",
                .signed_by = own.id + ":" + own.secret,
                .once = request.method == "PUT"};
  if (!request.condition.empty()) call.fields.push_back(request.condition);
  const bool has_token = !own.session_token.empty();
  if (has_token) call.fields.push_back("x-amz-security-token: " + own.session_token);
  return call;
}

std::vector<HttpCall> S3Client::send(const std::vector<S3Request>& requests,
                                     const CallOptions& call_options) {
  server_.look_up(call_options);
  const AwsCredentials& own = credentials(call_options);
  std::vector<HttpCall> calls;
  for (const S3Request& each : requests) calls.push_back(signed_call(each, own));
  const Deadline sent = BootClock::now();
  http_.send(calls, call_options);
  for (const HttpCall& call : calls) {
    if (call.end != HttpCall::End::answered) {
      server_.resolved.clear();
      throw call.no_answer(shown_);
    }
    const bool missing =
        call.status == s3_not_found && xml_text(call.answer, "Code") == "NoSuchKey";
    const bool lost_race = call.status == s3_conflict || call.status == s3_precondition_failed;
    const bool done = call.status == s3_ok || call.status == http_no_content;
    if (!done && !missing && !lost_race) refuse(call);
    const auto clock = call.date();
    if (!clock) throw_unavailable(shown_ + ": its answer has no date", Cause::other_reply);
    last_answer_ = DatedAnswer{sent, *clock};
  }
  return calls;
}

/// Throws the Error for an answer that is an error of the store.
void S3Client::refuse(const HttpCall& call) {
  const std::string code = xml_text(call.answer, "Code");
  const std::string said = escaped(code + ": " + xml_text(call.answer, "Message"));
  const auto is = [&](auto... codes) { return ((code == codes) || ...); };
  const auto fail = [&](ErrorKind kind, const std::string& why, Cause cause = Cause::other_reply) {
    throw Error(kind, shown_ + ": " + why, cause);
  };
  std::string region = call.answer_field("x-amz-bucket-region");
  region = escaped(region.empty() ? xml_text(call.answer, "Region") : region);
  const bool elsewhere = call.status == http_moved || call.status == http_moved_for_now ||
                         is("AuthorizationHeaderMalformed");
  if (elsewhere && region.empty()) fail(ErrorKind::usage, said + ": ?region=NAME tells it");
  if (elsewhere) fail(ErrorKind::usage, "the bucket is in " + region + ": ?region=" + region);
  if (is("NoSuchBucket", "InvalidBucketName")) fail(ErrorKind::usage, "there is no such bucket");
  if (is("RequestTimeTooSkewed")) {
    fail(ErrorKind::host_refused, "this host's clock is off by more than 15 minutes");
  }
  if (is("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
         "XAdminUserNotFound")) {
    credentials_.forget();
    fail(ErrorKind::denied, said, Cause::password_wrong);
  }
  if (call.status == 401 || call.status == 403) {
    fail(ErrorKind::denied, said + ": `dlock doctor --acl` prints the rights that dlock needs",
         Cause::acl);
  }
  const bool later = !code.empty() && (call.status >= http_broken || call.status == http_too_many);
  if (later) fail(ErrorKind::unavailable, "later: " + said, Cause::busy);
  throw_unavailable(shown_ + ": it answers " + std::to_string(call.status) +
                        (code.empty() ? ", and is no S3" : ": " + said),
                    Cause::other_reply);
}

}  // namespace dlock
