#include "s3/s3_client.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "net/digest.hpp"
#include "s3/s3_xml.hpp"

namespace dlock {
namespace {

constexpr long http_no_content = 204, http_moved = 301, http_moved_for_now = 307,
               http_too_many = 429, http_broken = 500;

/// The right that AWS asks for.
std::string action_of(const S3Request& request) {
  if (request.query.starts_with("versioning")) return "s3:GetBucketVersioning";
  if (request.key.empty()) return "s3:ListBucket";
  if (request.method == "GET") return "s3:GetObject and s3:ListBucket";
  return request.method == "PUT" ? "s3:PutObject" : "s3:DeleteObject";
}

}  // namespace

S3Client::S3Client(S3Place place, std::string shown)
    : place_(std::move(place)),
      shown_(std::move(shown)),
      credentials_(place_.region),
      server_{place_.server, place_.bucket_in_path ? "/" + place_.bucket + "/" : "/"},
      http_(place_.server.tls) {}

std::vector<HttpCall> S3Client::signed_calls(const std::vector<S3Request>& requests,
                                             const CallOptions& call_options) {
  const AwsCredentials& own = credentials(call_options);
  std::vector<HttpCall> calls;
  for (const S3Request& request : requests) {
    const std::string query = request.query.empty() ? "" : "?" + request.query;
    HttpCall call{.to = server_.at(request.key + query),
                  .body = request.body,
                  .method = request.method,
                  .fields = {"x-amz-content-sha256: " + sha256_hex(request.body)},
                  .signed_for = "aws:amz:" + place_.region + ":s3",
                  .signed_by = own.id + ":" + own.secret,
                  .once = request.method == "PUT"};
    if (!request.condition.empty()) call.fields.push_back(request.condition);
    if (!own.session_token.empty()) {
      call.fields.push_back("x-amz-security-token: " + own.session_token);
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

std::vector<HttpCall> S3Client::send(const std::vector<S3Request>& requests,
                                     const CallOptions& call_options) {
  server_.look_up(call_options);
  auto calls = signed_calls(requests, call_options);
  const Deadline sent = BootClock::now();
  http_.send(calls, call_options);
  for (std::size_t i = 0; i < calls.size(); ++i) take(requests[i], calls[i], sent);
  return calls;
}

void S3Client::take(const S3Request& request, const HttpCall& call, Deadline sent) {
  if (call.end != HttpCall::End::answered) throw_unanswered(call);
  const bool missing = call.status == s3_not_found && xml_text(call.answer, "Code") == "NoSuchKey";
  const bool lost_race = call.status == s3_conflict || call.status == s3_precondition_failed;
  const bool done = call.status == s3_ok || call.status == http_no_content;
  if (!done && !missing && !lost_race) refuse(request, call);
  const auto clock = call.date();
  if (!clock) throw_unavailable(shown_ + ": its answer has no date", Cause::other_reply);
  last_answer_ = DatedAnswer{sent, *clock};
}

void S3Client::throw_unanswered(const HttpCall& call) {
  server_.resolved.clear();
  const bool refused = call.end == HttpCall::End::certificate_refused ||
                       (call.end == HttpCall::End::tls_file_unusable && !last_answer_);
  const std::string why = shown_ + ": " + call.trouble;
  if (refused) throw Error(ErrorKind::denied, why, Cause::certificate);
  throw_unavailable(why);
}

/// Throws the Error for an answer that is an error of the store.
void S3Client::refuse(const S3Request& request, const HttpCall& call) {
  const std::string code = xml_text(call.answer, "Code");
  const std::string said = escaped(code + ": " + xml_text(call.answer, "Message"));
  const auto is = [&](auto... codes) { return ((code == codes) || ...); };
  const auto fail = [&](ErrorKind kind, const std::string& why, Cause cause = Cause::other_reply) {
    throw Error(kind, shown_ + ": " + why, cause);
  };
  std::string region = call.answer_field("x-amz-bucket-region");
  if (region.empty()) region = xml_text(call.answer, "Region");
  const bool elsewhere = call.status == http_moved || call.status == http_moved_for_now ||
                         is("AuthorizationHeaderMalformed");
  if (elsewhere && !region.empty()) {
    region = escaped(region);
    fail(ErrorKind::usage, "the bucket is in " + region + ": ?region=" + region);
  }
  if (elsewhere) fail(ErrorKind::usage, said + ": ?region=NAME tells the bucket's");
  if (is("NoSuchBucket")) fail(ErrorKind::usage, "there is no such bucket");
  if (is("RequestTimeTooSkewed")) {
    fail(ErrorKind::host_refused, "this host's clock is off by more than 15 minutes");
  }
  if (is("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")) {
    credentials_.forget();
    fail(ErrorKind::denied, said, Cause::password_wrong);
  }
  if (call.status == 401 || call.status == 403) {
    fail(ErrorKind::denied,
         said + ": it needs " + action_of(request) +
             " (`dlock doctor --acl` prints the rights that dlock needs)",
         Cause::acl);
  }
  const bool later = call.status >= http_broken || call.status == http_too_many;
  if (later && !code.empty()) fail(ErrorKind::unavailable, "later: " + said, Cause::busy);
  throw_unavailable(shown_ + ": it answers " + std::to_string(call.status) +
                        (code.empty() ? ", and is no S3" : ": " + said),
                    Cause::other_reply);
}

}  // namespace dlock
